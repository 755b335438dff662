"""The contiguous cache: every lane owns one region of consecutive pages, and nothing is shared."""

from ninfer_jax.cache.base import ContiguousCacheView, KVCache, PageCounts
from ninfer_jax.cache.policy import Candidate, RootOnlyPolicy
from ninfer_jax.cache.storage import Storage
from ninfer_jax.cache.table import Task


class ContiguousCache(KVCache):
    """Lane ``i`` owns pages ``1 + i * R .. (i + 1) * R``, with ``R = num_pages // num_lanes``. A task
    takes as many of its lane's pages as it is entitled to, from the first."""

    def __init__(self, storage: Storage) -> None:
        assert storage.num_pages % storage.num_lanes == 0, "regions must be equal"
        super().__init__(storage, RootOnlyPolicy())
        self.pages_per_lane = storage.num_pages // storage.num_lanes

    def _take(self, lane: int, num_pages: int, candidate: Candidate) -> tuple[int, ...]:
        assert num_pages <= self.pages_per_lane, "an entitlement larger than a lane's region"
        assert all(task.lane != lane for task in self.tasks), f"lane {lane} is taken"
        first = 1 + lane * self.pages_per_lane
        return tuple(range(first, first + num_pages))

    def _give_back(self, task: Task) -> None:
        pass  # a region belongs to its lane

    def _forget(self, page: int) -> None:
        pass

    def view(self, task_id: int) -> ContiguousCacheView:
        task = self.tasks[task_id]
        return ContiguousCacheView(self.storage, task.pages[0], len(task.pages), task.slot, task.frontier)

    def counts(self) -> PageCounts:
        held = self._reserved
        return PageCounts(self.capacity - held, held, 0, self.capacity, held, 0)

    def clear(self) -> None:
        pass

    def _check_pages(self) -> None:
        held = [page for task in self.tasks for page in task.pages]
        assert len(held) == len(set(held)), "a page has two owners"
