"""Physical pages: every page is in exactly one place, whatever the order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.cache import Allocator


def allocator(num_pages: int) -> tuple[Allocator, list[int]]:
    evicted: list[int] = []

    def evict(page: int) -> list[int]:
        evicted.append(page)
        return [page]

    return Allocator(num_pages, evict), evicted


def test_null_page_is_never_handed_out() -> None:
    pages, _ = allocator(5)
    assert sorted(pages.allocate(5)) == [1, 2, 3, 4, 5]


def test_free_pages_go_before_cached_ones_and_the_oldest_cached_first() -> None:
    pages, evicted = allocator(4)
    first, second, third = pages.allocate(3)
    for page in (second, first, third):
        pages.release(page, keep=True)
    assert (pages.num_free, pages.num_cached, pages.num_held) == (1, 3, 0)
    pages.allocate(1)
    assert evicted == []
    assert pages.allocate(2) == [second, first] or evicted == [second, first]
    assert evicted == [second, first]


def test_a_hit_takes_a_cached_page_out_of_the_lru() -> None:
    pages, evicted = allocator(2)
    first, second = pages.allocate(2)
    pages.release(first, keep=True)
    pages.release(second, keep=True)
    pages.retain(first)
    pages.allocate(1)
    assert evicted == [second]
    assert pages.references(first) == 1


def test_a_page_is_free_when_its_last_holder_leaves() -> None:
    pages, _ = allocator(1)
    (page,) = pages.allocate(1)
    pages.retain(page)
    pages.release(page, keep=False)
    assert pages.num_free == 0
    pages.release(page, keep=False)
    assert pages.num_free == 1
    with pytest.raises(AssertionError, match="no holder"):
        pages.release(page, keep=False)


def test_more_than_there_is_changes_nothing() -> None:
    pages, evicted = allocator(3)
    held = pages.allocate(2)
    pages.release(held[0], keep=True)
    with pytest.raises(AssertionError, match="3 pages wanted, 2 available"):
        pages.allocate(3)
    assert (pages.num_free, pages.num_cached, pages.num_held, evicted) == (1, 1, 1, [])


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11), st.booleans())))
def test_pages_are_conserved(num_pages: int, steps: list[tuple[int, int, bool]]) -> None:
    pages, _ = allocator(num_pages)
    held: list[int] = []
    for action, number, keep in steps:
        if action == 0 and number <= pages.num_available:
            held.extend(pages.allocate(number))
        elif action == 1 and held:
            pages.release(held.pop(number % len(held)), keep=keep)
        elif action == 2 and 1 + number <= num_pages and (1 + number in held or pages.is_cached(1 + number)):
            pages.retain(1 + number)
            held.append(1 + number)
        elif action == 3:
            pages.drop_cached()
        pages.check()
        assert pages.num_held == len(set(held))
        assert all(pages.references(page) == held.count(page) for page in range(1, num_pages + 1))
