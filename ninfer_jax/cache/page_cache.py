"""The paged cache: any page for any task, whole pages shared by content."""

from collections import Counter

from ninfer_jax.cache.allocator import Allocator
from ninfer_jax.cache.base import KVCache, PageCacheView, PageCounts
from ninfer_jax.cache.policy import Candidate, PrefixPolicy, WholePagePolicy
from ninfer_jax.cache.storage import Storage
from ninfer_jax.cache.table import Task
from ninfer_jax.config import PAGE_SIZE


class PageCache(KVCache):
    """Allocator + prefix policy + task table.

    A task's first ``candidate.num_tokens // 64`` pages are shared and never written by it; the rest are
    its own. When it ends, its full pages stay cached until their space is needed.
    """

    def __init__(self, storage: Storage, policy: PrefixPolicy | None = None) -> None:
        super().__init__(storage, policy or WholePagePolicy())
        self.allocator = Allocator(storage.num_pages, self.policy.evict)

    def _take(self, lane: int, num_pages: int, candidate: Candidate) -> tuple[int, ...]:
        # What the candidate needs is retained first, so that making room cannot evict it.
        tail = () if candidate.tail_page is None else (candidate.tail_page,)
        for page in (*candidate.pages, *tail):
            self.allocator.retain(page)
        own = self.allocator.allocate(num_pages - len(candidate.pages))
        for page in tail:
            self.allocator.release(page, keep=self.policy.keeps(page))
        return candidate.pages + tuple(own)

    def _give_back(self, task: Task) -> None:
        # Deepest first: the start of a chain serves more prompts than its end, so it is evicted last.
        for page in reversed(task.pages):
            self.allocator.release(page, keep=self.policy.keeps(page))

    def _forget(self, page: int) -> None:
        self.allocator.forget(page)

    def view(self, task_id: int) -> PageCacheView:
        task = self.tasks[task_id]
        return PageCacheView(self.storage, task.pages, task.slot, task.frontier)

    def counts(self) -> PageCounts:
        pages = self.allocator
        return PageCounts(
            free=pages.num_free,
            held=pages.num_held,
            cached=pages.num_cached,
            capacity=self.capacity,
            reserved=self._reserved,
            shared=self._reserved - pages.num_held,
        )

    def clear(self) -> None:
        self.allocator.drop_cached()

    def _check_pages(self) -> None:
        self.allocator.check()
        holders = Counter(page for task in self.tasks for page in task.pages)
        for page in range(1, self.capacity + 1):
            assert self.allocator.references(page) == holders[page], f"page {page}: wrong count"
            if self.allocator.is_cached(page):
                assert self.policy.keeps(page), f"page {page} is cached but cannot be found"
        for task in self.tasks:
            own = task.pages[task.frontier // PAGE_SIZE :]
            assert all(holders[page] == 1 for page in own), "a page still being written is shared"
