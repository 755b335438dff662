"""``python -m tests.soak.observed serve ...``: the command, with a witness of its heap inside the process.

Each line on stdin is answered by one JSON line on stdout: :func:`census`.
"""

import gc
import json
import sys
import threading
from collections import Counter
from typing import Any

from ninfer_jax.cli.main import main

GROWING_POOLS = ("prepare_",)
"""Name prefixes of the pools that start a thread when all they have are busy, up to a bound."""


def census() -> dict[str, Any]:
    """What Python and jax hold: exact, and at rest independent of the machine and of the allocator."""
    import jax  # not before the command has prepared the environment

    for _ in range(2):  # what finalizers let go of
        gc.collect()
    return {
        "blocks": sys.getallocatedblocks(),
        "arrays": len(jax.live_arrays()),
        "pool_threads": sum(thread.name.startswith(GROWING_POOLS) for thread in threading.enumerate()),
        "types": Counter(type(held).__qualname__ for held in gc.get_objects()),
    }


def answer() -> None:
    for _ in sys.stdin:
        print(json.dumps(census()), flush=True)


if __name__ == "__main__":
    threading.Thread(target=answer, name="witness", daemon=True).start()
    sys.exit(main())
