"""``ninfer-jax inspect PATH``: what a model file or folder is. Reads no weights."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.summary import Summary, summarise
from ninfer_jax.cli.sizes import binary_size, short_count

HELP = "Print what a model is: identity, architecture, formats, sizes, frontend files."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        metavar="PATH",
        help="a .gguf file, a checkpoint folder or a .ninfer artifact (default: the demo model)",
    )
    parser.add_argument("--verify", action="store_true", help="hash an artifact's weights too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    summary = summarise(args.path or demo_model(), verify=args.verify)
    facts = describe(summary)
    print(json.dumps(facts, indent=2, ensure_ascii=False) if args.json else _text(summary, facts))
    return 0


def describe(summary: Summary) -> dict[str, Any]:
    """The facts, JSON-ready."""
    return {
        "model_id": summary.model_id,
        "kind": summary.kind,
        "path": summary.path,
        "architecture": {
            "model_type": summary.config.model_type,
            "layers": dict(Counter(kind.value for kind in summary.config.layer_kinds)),
            "hidden_size": summary.config.hidden_size,
            "kv_heads": summary.config.num_kv_heads,
            "head_dim": summary.config.head_dim,
            "vocab_size": summary.config.vocab_size,
            "max_context": summary.config.max_position_embeddings,
        },
        "num_parameters": summary.num_parameters,
        "weights": {"bytes": summary.weight_bytes, "formats": dict(summary.formats)},
        "generation": {key: value for key, value in asdict(summary.generation).items() if value is not None},
        "template": _template_capabilities(summary.frontend.chat_template),
        "resources": {name: asdict(resource) for name, resource in summary.resources.items()},
        **summary.manifest,
    }


def _template_capabilities(template: str | None) -> dict[str, bool]:
    """What a chat template mentions: the variables that switch tools and thinking on."""
    text = template or ""
    return {
        "chat": template is not None,
        "tools": "tools" in text,
        "thinking": "enable_thinking" in text or "</think>" in text,
        "reasoning_effort": "reasoning_effort" in text,
    }


def _text(summary: Summary, facts: Mapping[str, Any]) -> str:
    shape, template = facts["architecture"], facts["template"]
    layers = " + ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in shape["layers"].items())
    formats = ", ".join(f"{count} {name}" for name, count in summary.formats.items())
    abilities = ", ".join(name.replace("_", " ") for name, present in template.items() if present)
    defaults = ", ".join(
        f"{key} {value}" for key, value in facts["generation"].items() if key != "eos_token_ids"
    )
    rows = {
        "model": summary.model_id,
        "source": f"{summary.kind}, {summary.path}",
        "architecture": f"{shape['model_type']}: {layers} layers, hidden {shape['hidden_size']:,}, "
        f"{shape['kv_heads']} KV heads of {shape['head_dim']}, vocabulary {shape['vocab_size']:,}",
        "context": f"{shape['max_context']:,} tokens",
        "parameters": f"{short_count(summary.num_parameters)} ({summary.num_parameters:,})",
        "weights": f"{binary_size(summary.weight_bytes)} ({formats})",
        "template": abilities or "none",
        "end tokens": ", ".join(map(str, summary.generation.eos_token_ids)) or "none",
        "sampling": defaults or "no defaults of its own",
        "resources": "",
    }
    lines = [f"{key:<14}{value}".rstrip() for key, value in rows.items()]
    width = max(map(len, summary.resources), default=0)
    lines += [
        f"  {name:<{width}}  {binary_size(resource.nbytes):>10}  sha256 {resource.sha256}"
        for name, resource in summary.resources.items()
    ]
    return "\n".join(lines)
