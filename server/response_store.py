"""Responses kept for retrieval and continuation: an LRU of this process, bounded by records and bytes.

A stored Response is its JSON and one step of a conversation. Steps share their past, so a chain of n
Responses holds each Item once. A step lives as long as a retained Response needs it: deleting or evicting
a Response takes its object away, and leaves its descendants whole.

Everything is kept as the bytes of its JSON, which makes the accounting exact: ``num_bytes`` is the sum over
all retained objects, and over all steps that they reach.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from ninfer_jax.errors import ResponseNotFoundError, UnsupportedFeatureError


@dataclass(eq=False, slots=True)
class Step:
    """What one Response added to its conversation: JSON arrays of Items."""

    parent: "Step | None"
    input_items: bytes
    output_items: bytes
    total_bytes: int = field(init=False)
    """With all its past."""
    holders: int = field(default=0, init=False)
    """Retained Responses and held steps that need this one; the store's own."""

    def __post_init__(self) -> None:
        self.total_bytes = self.num_bytes + (self.parent.total_bytes if self.parent else 0)

    @property
    def num_bytes(self) -> int:
        return len(self.input_items) + len(self.output_items)

    def lineage(self) -> list["Step"]:
        """From the first step to this one."""
        steps: list[Step] = []
        step: Step | None = self
        while step is not None:
            steps.append(step)
            step = step.parent
        return steps[::-1]


@dataclass(frozen=True, eq=False, slots=True)
class StoredResponse:
    id: str
    body: bytes
    """The terminal object as JSON, byte for byte what ``GET`` answers."""
    step: Step
    session_key: str
    preserve_thinking: bool
    output_ids: tuple[str, ...] = ()
    """Of the Items it produced, by which later requests may refer to them."""


class ResponseStore:
    """Every method may be called from any thread. Steps are counted only while they are held here."""

    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self.max_records, self.max_bytes = max_records, max_bytes
        self._records: OrderedDict[str, StoredResponse] = OrderedDict()
        self._producers: dict[str, str] = {}
        self._num_bytes = 0
        self._lock = threading.Lock()

    @property
    def num_records(self) -> int:
        with self._lock:
            return len(self._records)

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return self._num_bytes

    def check_fits(self, num_bytes: int) -> None:
        """Raises UnsupportedFeatureError for one Response, with all its history, beyond the capacity."""
        if num_bytes > self.max_bytes:
            raise UnsupportedFeatureError(
                f"the response with its history takes {num_bytes} bytes, the store holds {self.max_bytes};"
                " send store:false",
                field="store",
                code="response_store_capacity_exceeded",
            )

    def put(self, record: StoredResponse) -> None:
        """Retain a Response as the latest used one; the least recently used ones make room."""
        self.check_fits(len(record.body) + record.step.total_bytes)
        with self._lock:
            assert record.id not in self._records, "ids are fresh"
            self._records[record.id] = record
            self._producers.update(dict.fromkeys(record.output_ids, record.id))
            self._num_bytes += len(record.body)
            self._hold(record.step)
            while len(self._records) > self.max_records or self._num_bytes > self.max_bytes:
                _, oldest = self._records.popitem(last=False)
                self._let_go(oldest)

    def get(self, response_id: str) -> StoredResponse:
        """A retained Response, now the latest used. Raises ResponseNotFoundError."""
        with self._lock:
            if response_id not in self._records:
                raise _not_found(response_id)
            self._records.move_to_end(response_id)
            return self._records[response_id]

    def producer_of(self, item_id: str) -> StoredResponse | None:
        """The retained Response whose output holds this Item, now the latest used."""
        with self._lock:
            response_id = self._producers.get(item_id)
            if response_id is None:
                return None
            self._records.move_to_end(response_id)
            return self._records[response_id]

    def delete(self, response_id: str) -> None:
        """Raises ResponseNotFoundError."""
        with self._lock:
            record = self._records.pop(response_id, None)
            if record is None:
                raise _not_found(response_id)
            self._let_go(record)

    def _hold(self, step: Step | None) -> None:
        """Count a step, and, if nobody held it, its past: a parent may have been let go meanwhile."""
        while step is not None:
            step.holders += 1
            if step.holders > 1:
                return
            self._num_bytes += step.num_bytes
            step = step.parent

    def _let_go(self, record: StoredResponse) -> None:
        self._num_bytes -= len(record.body)
        for item_id in record.output_ids:
            del self._producers[item_id]
        step: Step | None = record.step
        while step is not None:
            step.holders -= 1
            if step.holders:
                return
            self._num_bytes -= step.num_bytes
            step = step.parent


def _not_found(response_id: str) -> ResponseNotFoundError:
    return ResponseNotFoundError(f"there is no stored response {response_id[:100]!r}", field="response_id")
