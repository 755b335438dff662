"""Does this project work on this device, and how near its limits is it? One Markdown table and one JSON file.

    python -m profiles.device_check --out device_check              # on a machine with a CUDA GPU
    JAX_PLATFORMS=cpu python -m profiles.device_check --rehearse     # every section at tiny sizes, anywhere

Sections run one after another, each in a process of its own with a share of ``--seconds``: the device and its
measured limits; every kernel against its float32 reference at the models' shapes; a random model of the 27B's
widths and few layers; SmolLM2 through the Python API; ``ninfer-jax serve`` over HTTP; the 35B's widths. What
fails is a row, and the rest goes on; the exit code is 1 if anything failed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from profiles.device.report import Row, as_json, failures, markdown
from profiles.device.sections import DEVICE, SECTIONS, budget
from profiles.device.steps import FACTS
from profiles.device.supervise import supervise

NAME = "device_check"


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    if args.compile_for:
        from profiles.device.elsewhere import compile_for

        return compile_for(args.compile_for, tiny=args.rehearse)
    facts, rows = check(args.only, args.seconds, rehearse=args.rehearse)
    table = markdown(title(facts), rows)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{NAME}.md").write_text(table)
    (args.out / f"{NAME}.json").write_text(json.dumps(as_json(facts, rows), indent=2) + "\n")
    print(table)
    tell(f"{len(rows)} rows, {len(failures(rows))} failed; written to {args.out}")
    return 1 if failures(rows) else 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(NAME), metavar="DIR", help=f"default: ./{NAME}")
    parser.add_argument("--seconds", type=float, default=360.0, help="for all of it (default: 360)")
    parser.add_argument(
        "--only",
        action="append",
        choices=SECTIONS,
        metavar="SECTION",
        help=f"{DEVICE} and this one, of {'; '.join(SECTIONS)}; may be repeated",
    )
    parser.add_argument("--rehearse", action="store_true", help="tiny sizes: whether it runs, not how fast")
    parser.add_argument(
        "--compile-for", metavar="GPU", help="only compile the kernels for a GPU that is not here"
    )
    args = parser.parse_args(argv)
    args.only = [name for name in SECTIONS if not args.only or name in (DEVICE, *args.only)]
    return args


def check(chosen: Sequence[str], seconds: float, *, rehearse: bool) -> tuple[dict[str, Any], list[Row]]:
    """What is known of the device, and the rows of all sections."""
    began = time.monotonic()
    rows: list[Row] = []
    facts: dict[str, Any] = {"date": date.today().isoformat(), "rehearsal": rehearse}
    with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as name:
        folder = Path(name)
        for section in chosen:
            if facts.get("platform") == "cpu" and not rehearse:
                break  # true sizes are hours of work for it
            share = budget(section, chosen, began + seconds - time.monotonic())
            tell(f"{section}: up to {share:.0f} s")
            arguments = ["--rehearse"] if rehearse else []
            rows += supervise(section, share, folder, arguments, tell=tell)
            if section == DEVICE and (found := folder / FACTS).exists():
                facts |= json.loads(found.read_text())
    return {**facts, "seconds": round(time.monotonic() - began, 1)}, rows


def title(facts: dict[str, Any]) -> str:
    what = "a rehearsal at tiny sizes on " if facts["rehearsal"] else ""
    device = facts.get("device", "an unknown device")
    return f"{what}{device}, jax {facts.get('jax', '?')}, {facts['date']}, {facts['seconds']:.0f} s"


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
