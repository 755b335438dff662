"""The process of one section; :mod:`profiles.device.supervise` starts ``python -m profiles.device.child``."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from ninfer_jax.cli import environment
from profiles.device.sections import SECTIONS
from profiles.device.steps import COMPILE_CACHE, LIMITS, DeviceLostError, Journal, Limits, Settings, run_steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--section", choices=SECTIONS, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds
    folder = args.journal.parent
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder / COMPILE_CACHE)
    environment.prepare()
    settings = Settings(args.section, args.rehearse, deadline, folder, _limits(folder / LIMITS))
    steps = [step for step in SECTIONS[args.section].steps(settings) if step.name not in args.skip]
    try:
        run_steps(settings, steps, Journal(args.journal), device_is_alive)
    except DeviceLostError as error:
        print(f"the device is lost after {error}", file=sys.stderr)
        return 3
    return 0


def end(code: int) -> None:
    """Without waiting for programs that are still compiling: the journal is complete."""
    sys.stderr.flush()
    os._exit(code)


def device_is_alive() -> bool:
    """Whether this process can still compute; an illegal address on a GPU ends that."""
    import jax.numpy as jnp

    try:
        return int(jnp.asarray(1) + 1) == 2
    except Exception:
        return False


def _limits(path: Path) -> Limits | None:
    return Limits(**json.loads(path.read_text())) if path.exists() else None


if __name__ == "__main__":
    end(main())
