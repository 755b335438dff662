"""Write golden/qwen3_5_NAME.npz: what transformers computes in float32 for each tiny hybrid.

    PYTHONPATH=. python tests/models/make_hybrid_golden.py

One row of 140 tokens at 3-axis positions: logits at a few of them, and the recurrent states after the last.
The weights are not stored: ``cases.random_tensors`` makes them again from the config.
"""

import numpy as np
import torch
from transformers import DynamicCache

from ninfer_jax.models.registry import architecture
from tests.models.cases import GOLDEN, hugging_face_model, random_tensors
from tests.models.hybrid_cases import CONFIGS, DELTA_NET, SCALE, scattered_positions

LENGTH = 140
KEPT = np.array([0, 1, 62, 63, 64, 65, 99, 127, 128, 139])


def main() -> None:
    for name, members in CONFIGS.items():
        module = architecture(members)
        config = module.parse_config(members)
        model = hugging_face_model(members, random_tensors(module.abstract(config), scale=SCALE))
        tokens = np.random.RandomState(1).randint(0, config.vocab_size, LENGTH)
        positions = scattered_positions(LENGTH, 1)
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            logits = (
                model(
                    input_ids=torch.from_numpy(tokens)[None],
                    position_ids=torch.from_numpy(positions)[:, None],
                    cache=cache,
                )
                .logits[0]
                .numpy()
            )
        path = GOLDEN / f"qwen3_5_{name}.npz"
        np.savez_compressed(
            path,
            tokens=tokens.astype(np.int32),
            positions=positions.astype(np.int32),
            kept=KEPT,
            logits=logits[KEPT],
            rule=cache.get_recurrent_state(DELTA_NET)[0].numpy(),
            conv=cache.get_conv_state(DELTA_NET)[0].numpy().T[1 - config.conv_width :],
        )
        print(path.name, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
