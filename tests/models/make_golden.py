"""Write golden/NAME.npz: a few tokens and transformers' float32 logits for each tiny dense config.

    PYTHONPATH=. python tests/models/make_golden.py

The weights are not stored: ``cases.random_tensors`` makes them again from the config.
"""

import numpy as np
import torch

from ninfer_jax.models import llama
from tests.models.cases import CONFIGS, GOLDEN, hugging_face_model, random_tensors


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, members in CONFIGS.items():
        config = llama.parse_config(members)
        model = hugging_face_model(members, random_tensors(llama.abstract(config)))
        tokens = np.random.RandomState(1).randint(0, config.vocab_size, 140)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
        positions = np.array([0, 1, 62, 63, 64, 65, 99, 127, 128, 139])
        path = GOLDEN / f"{name}.npz"
        np.savez_compressed(
            path, tokens=tokens.astype(np.int32), positions=positions, logits=logits[positions]
        )
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
