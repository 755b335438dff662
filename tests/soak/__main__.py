"""``python -m tests.soak --minutes 30``: the soak as a command; exit code 1 when something was wrong."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Length, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="default: 30")
    parser.add_argument("--answers", type=int, metavar="N", help="end after N checked answers instead")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    args = parser.parse_args()
    length = Length(seconds=60 * args.minutes) if args.answers is None else Length(answers=args.answers)
    with tempfile.TemporaryDirectory(prefix="ninfer-soak-") as folder:
        report = soak(Path(folder), length, seed=args.seed)
    print("\n".join(report.lines()))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
