"""The index of page contents: hashes find, exact comparison accepts."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.cache import PrefixCache
from ninfer_jax.cache.prefix import block_bytes
from ninfer_jax.config import PAGE_SIZE


class OneHash(bytes):
    """Block bytes that all collide."""

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return bytes.__eq__(self, other) is True


def colliding(tokens: Sequence[int]) -> bytes:
    return OneHash(block_bytes(tokens))


def fill(index: PrefixCache, tokens: Sequence[int], first_page: int) -> None:
    node = index.root
    for number in range(len(tokens) // PAGE_SIZE):
        block = tokens[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]
        node = index.insert(node, block, first_page + number)


def matched(index: PrefixCache, tokens: Sequence[int]) -> list[int]:
    return [node.page for node in index.match(tokens, len(tokens))]


@pytest.mark.parametrize("key", [block_bytes, colliding])
def test_28_a_forced_hash_collision_never_yields_a_hit(key) -> None:
    index = PrefixCache(key)
    blocks = [[start + i for i in range(PAGE_SIZE)] for start in (0, 1000, 2000)]
    fill(index, blocks[0] + blocks[1], 1)
    fill(index, blocks[2], 3)
    assert matched(index, blocks[0] + blocks[1]) == [1, 2]
    assert matched(index, blocks[2] + blocks[1]) == [3]
    assert matched(index, blocks[1]) == []
    index.check()


def test_the_same_block_after_another_prefix_is_another_page() -> None:
    index = PrefixCache()
    block, other = list(range(PAGE_SIZE)), list(range(1, PAGE_SIZE + 1))
    fill(index, block + block, 1)
    fill(index, other + block, 3)
    assert matched(index, block + block) == [1, 2]
    assert matched(index, other + block) == [3, 4]


def test_only_whole_pages_within_the_limit_match() -> None:
    index = PrefixCache()
    tokens = list(range(3 * PAGE_SIZE))
    fill(index, tokens, 1)
    assert [node.page for node in index.match(tokens, 2 * PAGE_SIZE - 1)] == [1]
    assert matched(index, tokens[: PAGE_SIZE - 1]) == []
    changed = [*tokens[:PAGE_SIZE], -1, *tokens[PAGE_SIZE + 1 :]]
    assert matched(index, changed) == [1]


def test_equal_contents_keep_the_first_page() -> None:
    index = PrefixCache()
    block = list(range(PAGE_SIZE))
    assert index.insert(index.root, block, 1).page == 1
    assert index.insert(index.root, block, 2).page == 1
    assert 2 not in index


def test_removing_a_page_removes_what_hangs_below_it() -> None:
    index = PrefixCache()
    tokens = list(range(3 * PAGE_SIZE))
    fill(index, tokens, 1)
    node = index.match(tokens, len(tokens))[1]
    assert sorted(index.remove(2)) == [2, 3]
    assert not index.is_attached(node)
    assert matched(index, tokens) == [1]
    index.check()


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=4), max_size=12))
def test_a_match_is_the_longest_indexed_prefix(chains: list[list[int]]) -> None:
    index = PrefixCache()
    known: set[tuple[int, ...]] = set()
    page = 1
    for chain in chains:
        node = index.root
        for depth in range(len(chain)):
            node = index.insert(node, [chain[depth]] * PAGE_SIZE, page)
            page += 1
            known.add(tuple(chain[: depth + 1]))
        index.check()
    for chain in chains:
        tokens = [value for value in chain for _ in range(PAGE_SIZE)]
        longest = max(d for d in range(len(chain) + 1) if d == 0 or tuple(chain[:d]) in known)
        assert len(matched(index, tokens)) == longest
