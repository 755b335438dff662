"""Huge pages are asked for under arrays, and nothing else changes."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ninfer_jax.engine import huge_pages
from ninfer_jax.engine.huge_pages import use_huge_pages

MIB = 2**20


def test_contents_and_addresses_stay() -> None:
    tree = {"large": jnp.arange(3 * MIB, dtype=jnp.int32), "small": [jnp.ones(5), jnp.ones((0, 3))]}
    before = jax.tree.map(np.array, tree)
    address = tree["large"].unsafe_buffer_pointer()
    asked = use_huge_pages(tree)
    assert asked % (2 * MIB) == 0
    assert asked >= 8 * MIB or not huge_pages.HUGE_PAGE_SIZE.is_file()
    assert tree["large"].unsafe_buffer_pointer() == address
    jax.tree.map(np.testing.assert_array_equal, tree, before)


def test_a_system_without_them_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huge_pages, "HUGE_PAGE_SIZE", tmp_path / "absent")
    assert use_huge_pages([jnp.ones(4 * MIB)]) == 0


class Piece:
    def __init__(self, address: int, nbytes: int) -> None:
        self.address, self.nbytes, self.data = address, nbytes, self
        self.addressable_shards = [self]

    def unsafe_buffer_pointer(self) -> int:
        return self.address


def test_neighbours_are_one_span() -> None:
    first, gap = 10 * MIB, huge_pages.GAP
    pieces = [
        Piece(first, MIB),
        Piece(first + MIB + gap, MIB),
        Piece(first + 5 * MIB, MIB),
        Piece(first + 5 * MIB, 100),
    ]
    spans = [span for span in huge_pages._spans(reversed(pieces)) if span[1]]  # type: ignore[arg-type]
    assert spans == [(first, first + 2 * MIB + gap), (first + 5 * MIB, first + 6 * MIB)]
