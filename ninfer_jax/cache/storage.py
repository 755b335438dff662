"""What the device holds for sequences, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """K and V of all attention layers together, one page group, and the state images beside them.

    ``num_pages`` counts usable pages; the arrays hold one more, the null page 0. ``page_bytes`` is what
    one page takes in all layers, measured on the arrays' own shapes by whoever allocates them. There are
    ``num_lanes`` images for active requests and ``num_checkpoints`` more.
    """

    num_pages: int
    page_bytes: int
    num_lanes: int
    num_checkpoints: int = 0

    @property
    def num_bytes(self) -> int:
        return (self.num_pages + 1) * self.page_bytes
