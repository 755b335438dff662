"""Physical pages: a free list, reference counts, and an LRU of cached pages that nobody holds."""

from collections.abc import Callable, Iterable

from ninfer_jax.config import NULL_PAGE


class Allocator:
    """Pages ``1..num_pages``, each exactly one of free, held (``references > 0``) or cached.

    A cached page has no holder but still has contents worth keeping; it is reused last, least recently
    released first. ``evict(page)`` is told when that happens and answers with every page whose contents
    can no longer be found because of it (the page itself and what hung below it).
    """

    def __init__(self, num_pages: int, evict: Callable[[int], Iterable[int]]) -> None:
        self.num_pages = num_pages
        self._evict = evict
        self._free = list(range(num_pages, NULL_PAGE, -1))
        self._references = [0] * (num_pages + 1)
        self._cached: dict[int, None] = {}  # insertion order is the LRU order

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_pages - len(self._free) - len(self._cached)

    @property
    def num_available(self) -> int:
        """Pages that ``allocate`` could hand out now."""
        return len(self._free) + len(self._cached)

    def references(self, page: int) -> int:
        return self._references[page]

    def is_cached(self, page: int) -> bool:
        return page in self._cached

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` private pages. The caller has checked ``num_available``."""
        assert count <= self.num_available, f"{count} pages wanted, {self.num_available} available"
        while len(self._free) < count:
            self._evict_oldest()
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def retain(self, page: int) -> None:
        """One more holder of a held or cached page."""
        assert self._references[page] > 0 or page in self._cached, f"page {page} is free"
        self._cached.pop(page, None)
        self._references[page] += 1

    def release(self, page: int, *, keep: bool) -> None:
        """One holder fewer; the last one leaves the page cached (``keep``) or free."""
        assert self._references[page] > 0, f"page {page} has no holder"
        self._references[page] -= 1
        if self._references[page] == 0:
            if keep:
                self._cached[page] = None
            else:
                self._free.append(page)

    def forget(self, page: int) -> None:
        """The contents are worth nothing any more: a page that nobody holds becomes free at once, one
        that is held when its last holder lets go of it without ``keep``."""
        if page in self._cached:
            del self._cached[page]
            self._free.append(page)

    def drop_cached(self) -> None:
        """Forget every page that nobody holds."""
        while self._cached:
            self._evict_oldest()

    def _evict_oldest(self) -> None:
        oldest = next(iter(self._cached))
        for page in self._evict(oldest):
            if page in self._cached:
                del self._cached[page]
                self._free.append(page)
        assert oldest not in self._cached, f"page {oldest} is cached but was not in the index"

    def check(self) -> None:
        """Raise AssertionError unless every page is free, cached or held, and only one of these."""
        free, cached = set(self._free), set(self._cached)
        held = {page for page, count in enumerate(self._references) if count > 0}
        assert len(free) == len(self._free), "a page is twice in the free list"
        assert not free & cached, f"free and cached: {free & cached}"
        assert not free & held, f"free and held: {free & held}"
        assert not cached & held, f"cached and held: {cached & held}"
        assert all(count >= 0 for count in self._references), "negative reference count"
        assert NULL_PAGE not in free | cached | held, "the null page was handed out"
        assert len(free) + len(cached) + len(held) == self.num_pages, "free + held + cached != capacity"
