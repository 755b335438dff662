"""Named argument shapes that tests, benches and tuning share."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.config import PAGE_SIZE


@dataclass(frozen=True)
class ArgSpec:
    """One call: ``starts`` tokens are in the cache already, ``lengths`` real columns come, T in all."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    columns: int
    starts: tuple[int, ...]
    lengths: tuple[int, ...]
    table_width: int = 6

    @property
    def num_pages(self) -> int:
        return len(self.starts) * self.table_width + 1

    def arguments(self, seed: int = 0) -> dict[str, NDArray[np.float32] | NDArray[np.int32]]:
        """Random float32 queries, keys, values and pool; tables hand out shuffled pages."""
        rng = np.random.default_rng(seed)
        rows = len(self.starts)
        step = (rows, self.columns)
        pool = (self.num_pages, PAGE_SIZE, self.num_kv_heads, self.head_dim)
        pages = rng.permutation(np.arange(1, self.num_pages, dtype=np.int32))
        return {
            "q": rng.standard_normal((*step, self.num_heads, self.head_dim), np.float32),
            "k": rng.standard_normal((*step, self.num_kv_heads, self.head_dim), np.float32),
            "v": rng.standard_normal((*step, self.num_kv_heads, self.head_dim), np.float32),
            "pool_k": rng.standard_normal(pool, np.float32),
            "pool_v": rng.standard_normal(pool, np.float32),
            "block_tables": pages.reshape(rows, self.table_width),
            "starts": np.array(self.starts, np.int32),
            "lengths": np.array(self.lengths, np.int32),
        }


DECODE = (
    ArgSpec("first_token", 9, 3, 64, 1, (0,), (1,)),
    ArgSpec("page_end", 9, 3, 64, 1, (63,), (1,)),
    ArgSpec("page_start", 9, 3, 64, 1, (64,), (1,)),
    ArgSpec("table_end", 9, 3, 64, 1, (383,), (1,)),
    ArgSpec("batch", 8, 2, 32, 1, (0, 5, 64, 130, 383), (1, 1, 1, 1, 1)),
    ArgSpec("padding_row", 8, 2, 32, 1, (0, 70, 0), (1, 1, 0)),
    ArgSpec("multi_head", 4, 4, 16, 1, (100, 20), (1, 1)),
    ArgSpec("multi_query", 6, 1, 128, 1, (100, 20), (1, 1)),
)
VERIFY = (
    ArgSpec("verify", 9, 3, 64, 4, (62, 0, 200), (4, 4, 3)),
    ArgSpec("verify_table_end", 8, 2, 32, 8, (380,), (4,)),
)
PREFILL = (
    ArgSpec("one_page", 9, 3, 64, 64, (0,), (64,)),
    ArgSpec("unaligned", 9, 3, 64, 80, (70,), (80,)),
    ArgSpec("padded", 9, 3, 64, 128, (100,), (9,)),
    ArgSpec("padded_past_the_table", 8, 2, 32, 256, (300,), (84,)),
    ArgSpec("ragged", 8, 2, 32, 100, (0, 64, 3, 200), (100, 0, 33, 100)),
    ArgSpec("odd", 5, 1, 16, 33, (1,), (33,)),
)
ALL = (*DECODE, *VERIFY, *PREFILL)
