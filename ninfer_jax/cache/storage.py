"""The KV pools of the device, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Storage:
    """K and V of all attention layers together, one page group.

    ``num_pages`` counts usable pages; the arrays hold one more, the null page 0. ``page_bytes`` is what
    one page takes in all layers, measured on the arrays' own shapes by whoever allocates them.
    """

    num_pages: int
    page_bytes: int

    @property
    def num_bytes(self) -> int:
        return (self.num_pages + 1) * self.page_bytes
