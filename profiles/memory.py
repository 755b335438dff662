"""Print what `serve` holds of memory beside its weights and KV pool, in each circumstance of a start.

    python profiles/memory.py [--prompt-tokens 3000]

The demo model, in int8. For one lane and for eight: the first start of all (nothing in the cache: kernels
and programs are compiled), then the next one. VmRSS when the server is ready, after one answer, and after an
answer to a long prompt.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import jax

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import load
from ninfer_jax.cli.bench_server import ServerProcess

MIB = 2**20
CASES = {
    "one lane, 8,192 tokens": (),
    "8 lanes, 16,384 tokens": ("--max-concurrency", "8", "--kv-capacity", "16384"),
}


def resident_bytes(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")


def answer(server: ServerProcess, prompt: str) -> None:
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 32}
    httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300).raise_for_status()


def stages(server: ServerProcess, prompt_tokens: int) -> Iterator[tuple[str, int]]:
    yield "ready", resident_bytes(server.process_id)
    answer(server, "Say hello.")
    yield "after one answer", resident_bytes(server.process_id)
    answer(server, "one " * prompt_tokens)
    yield f"after {prompt_tokens:,} tokens", resident_bytes(server.process_id)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--prompt-tokens", type=int, default=3000)
    options = parser.parse_args()
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(load(demo_model(), weights="int8").weights))
    print(f"weights {weights / MIB:.0f} MiB\n")
    print(
        "| serve | start | s | when | resident (MiB) | beside weights and pool |\n|---|---|---|---|---|---|"
    )
    for case, arguments in CASES.items():
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            for start in ("first of all", "second"):
                with ServerProcess(arguments) as server:
                    pool = httpx.get(f"{server.url}/stats").json()["capacity"]["kv_bytes"]
                    for when, resident in stages(server, options.prompt_tokens):
                        beside = resident - weights - pool
                        columns = (case, start, f"{server.startup_seconds:.1f}", when)
                        sizes = (f"{size / MIB:,.0f}" for size in (resident, beside))
                        print("|", " | ".join((*columns, *sizes)), "|", flush=True)


if __name__ == "__main__":
    main()
