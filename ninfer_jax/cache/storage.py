"""What the KV pools look like on the device, as plain numbers."""

from dataclasses import dataclass

from ninfer_jax.config import PAGE_SIZE


@dataclass(frozen=True, slots=True)
class Storage:
    """The paged K and V arrays of all attention layers together, one page group.

    ``num_pages`` counts usable pages; the arrays hold one more, the null page 0. ``dtype`` is the
    element type's name and ``itemsize`` its bytes, scales included where the type has them.
    """

    num_layers: int
    num_pages: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    itemsize: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """One layer's K (or V) pool: ``[pages, 64, kv_heads, head_dim]``."""
        return (self.num_pages + 1, PAGE_SIZE, self.num_kv_heads, self.head_dim)

    @property
    def bytes_per_page(self) -> int:
        """K and V of every layer."""
        return 2 * self.num_layers * PAGE_SIZE * self.num_kv_heads * self.head_dim * self.itemsize

    @property
    def num_bytes(self) -> int:
        return (self.num_pages + 1) * self.bytes_per_page


def pages_for(num_tokens: int) -> int:
    """Whole pages that hold ``num_tokens`` positions."""
    return -(-num_tokens // PAGE_SIZE)
