"""``ninfer-jax inspect PATH``: what a model file or folder is. Reads no weights."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.summary import Summary, summarise
from ninfer_jax.observe.sizes import binary_size, short_count
from ninfer_jax.text.frontend import Frontend

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
    facts = describe(summarise(args.path or demo_model(), verify=args.verify))
    print(json.dumps(facts, indent=2, ensure_ascii=False) if args.json else as_text(facts))
    return 0


def describe(summary: Summary) -> dict[str, Any]:
    """The facts, JSON-ready. Builds the tokenizer and tries the chat template."""
    config = summary.config
    frontend = Frontend.from_resources(
        summary.resources, max_context=config.max_position_embeddings, model_id=summary.model_id
    )
    capabilities = frontend.capabilities
    return {
        "model_id": summary.model_id,
        "kind": summary.kind,
        "path": summary.path,
        "architecture": {
            "model_type": config.model_type,
            "layers": dict(Counter(kind.value for kind in config.layer_kinds)),
            "hidden_size": config.hidden_size,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "max_context": config.max_position_embeddings,
        },
        "num_parameters": summary.num_parameters,
        "weights": {"bytes": summary.weight_bytes, "formats": dict(summary.formats)},
        "groups": {
            name: {"tensors": group.num_tensors, "bytes": group.nbytes}
            for name, group in summary.groups.items()
        },
        "tokenizer": {"vocab_size": frontend.tokenizer.vocab_size},
        "template": None if capabilities is None else asdict(capabilities),
        "eos_token_ids": sorted(frontend.defaults.eos_ids),
        "sampling": {
            "thinking": asdict(frontend.defaults.thinking),
            "plain": asdict(frontend.defaults.plain),
        },
        "resources": {
            name: {"bytes": len(data), "sha256": sha256(data).hexdigest()}
            for name, data in sorted(summary.resources.items())
        },
        **summary.manifest,
    }


def as_text(facts: Mapping[str, Any]) -> str:
    shape, resources = facts["architecture"], facts["resources"]
    layers = " + ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in shape["layers"].items())
    formats = ", ".join(f"{count} {name}" for name, count in facts["weights"]["formats"].items())
    rows = {
        "model": facts["model_id"],
        "source": f"{facts['kind']}, {facts['path']}",
        "architecture": f"{shape['model_type']}: {layers} layers, hidden {shape['hidden_size']:,}, "
        f"{shape['kv_heads']} KV heads of {shape['head_dim']}",
        "context": f"{shape['max_context']:,} tokens",
        "parameters": f"{short_count(facts['num_parameters'])} ({facts['num_parameters']:,})",
        "weights": f"{binary_size(facts['weights']['bytes'])} ({formats})",
        **({"beside them": _groups(facts["groups"])} if facts["groups"] else {}),
        "vocabulary": f"{facts['tokenizer']['vocab_size']:,} tokens, {shape['vocab_size']:,} rows",
        "template": _template(facts["template"]),
        "end tokens": ", ".join(map(str, facts["eos_token_ids"])) or "none",
        **_sampling(facts["sampling"]),
    }
    lines = [f"{key:<14}{value}" for key, value in rows.items()]
    width = max(map(len, resources), default=0)
    for name, resource in resources.items():
        lines.append(f"  {name:<{width}}  {binary_size(resource['bytes']):>10}  sha256 {resource['sha256']}")
    return "\n".join(lines)


def _groups(groups: Mapping[str, Mapping[str, int]]) -> str:
    """What the text model is served without."""
    return ", ".join(
        f"{name}: {group['tensors']} tensors, {binary_size(group['bytes'])}" for name, group in groups.items()
    )


def _sampling(samplers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """One row, or two where thinking has a sampler of its own. Only what is not the plain default."""
    words = {
        mode: ", ".join(f"{name} {value:g}" for name, value in sampler.items() if value and name != "seed")
        for mode, sampler in samplers.items()
    }
    words = {mode: text if samplers[mode]["temperature"] else "greedy" for mode, text in words.items()}
    if words["thinking"] == words["plain"]:
        return {"sampling": words["plain"]}
    return {"sampling": f"thinking: {words['thinking']}", "": f"else: {words['plain']}"}


def _template(capabilities: Mapping[str, Any] | None) -> str:
    if capabilities is None:
        return "none: plain completions only"
    words = [name for name in ("tools", "thinking") if capabilities[name]]
    if capabilities["efforts"]:
        words.append(f"reasoning effort {'/'.join(capabilities['efforts'])}")
    return ", ".join(["chat", *words])
