"""Print a model's perplexity on a text in each weight format and each form of computation.

    python profiles/perplexity.py [MODEL] [--text FILE] [--weights f32 int8]

MODEL defaults to the demo model, the text to tests/data/sample.txt. Ratios are to the first format.
"""

import argparse
from pathlib import Path

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import load
from ninfer_jax.engine.perplexity import perplexity
from ninfer_jax.text.frontend import Frontend

SAMPLE = Path(__file__).parent.parent / "tests" / "data" / "sample.txt"
FORMS = {"prefill, 256 columns": (1, 256), "decode, 8 rows": (8, 1), "decode, 1 row": (1, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--text", type=Path, default=SAMPLE)
    parser.add_argument("--weights", nargs="+", default=["f32", "int8"], choices=["f32", "bf16", "int8"])
    args = parser.parse_args()
    reference: dict[str, float] = {}
    for weights in args.weights:
        model = load(args.model or demo_model(), weights=weights)
        frontend = Frontend.from_resources(model.resources, max_context=1 << 20)
        ids = frontend.prepare_text(args.text.read_text()).prompt.token_ids
        for form, (rows, columns) in FORMS.items():
            value = perplexity(model, ids, rows=rows, columns=columns)
            ratio = value / reference.setdefault(form, value)
            print(
                f"{weights:5} {form:21} {len(ids)} tokens  perplexity {value:.4f}  ratio {ratio:.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
