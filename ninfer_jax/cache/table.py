"""Which task holds which pages, and how much of them is committed."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from ninfer_jax.cache.prefix import Node


@dataclass(slots=True, eq=False)
class Task:
    """One active request as the cache sees it.

    ``pages`` is the block table of the whole entitlement, fixed for the task's life; the first
    ``cached_tokens // 64`` of them are shared and read-only. ``tokens`` are the committed ids, one a
    cache ordinal. ``slot`` holds its state image. ``anchor`` is the index node of the task's deepest
    published block.
    """

    task_id: int
    lane: int
    pages: tuple[int, ...]
    slot: int
    cached_tokens: int
    tokens: "array[int]" = field(default_factory=lambda: array("i"))
    anchor: Node | None = None
    """None: nothing more of this task will be published."""
    num_published: int = 0

    @property
    def frontier(self) -> int:
        """Committed tokens in the cache."""
        return len(self.tokens)


class TaskTable:
    """task id -> :class:`Task`."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def __contains__(self, task_id: int) -> bool:
        return task_id in self._tasks

    def __getitem__(self, task_id: int) -> Task:
        return self._tasks[task_id]

    def add(self, task: Task) -> None:
        assert task.task_id not in self._tasks, f"task {task.task_id} exists"
        self._tasks[task.task_id] = task

    def remove(self, task_id: int) -> Task:
        return self._tasks.pop(task_id)
