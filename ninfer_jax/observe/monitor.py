"""One place that hears of every request, from the server and from the engine, and tells the logs.

                      server: prepared, rejected        engine: submitted .. finished | failed, round
                                   \\                       /
                                        ServeMonitor
                              /              |              \\
                      metrics (at once)   request log     console   (on the worker thread)

Implements the engine's observer and the server's :class:`RequestObserver`.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ninfer_jax.observe import lines, records
from ninfer_jax.observe.interval import is_idle, throughput
from ninfer_jax.observe.metrics import Metrics
from ninfer_jax.observe.request_log import RequestLog
from ninfer_jax.observe.requests import UNKNOWN_SHAPE, Rejection, RequestRecord, RequestShape
from ninfer_jax.observe.worker import Worker
from ninfer_jax.types import Admitted, Failed, Finished, GenerationRequest

logger = logging.getLogger(__name__)

FALLBACK_NONE = "none"


class ServeMonitor:
    """``interval`` seconds apart it reports throughput once :meth:`start` has an engine; 0 never."""

    def __init__(
        self,
        *,
        request_log: RequestLog | None = None,
        metrics: Metrics | None = None,
        interval: float = 5.0,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = metrics or Metrics()
        self._log = request_log
        self._interval = interval
        self._now, self._wall = now, wall
        self._numbers = itertools.count(1)
        self._records: dict[str, RequestRecord] = {}
        self._worker = Worker("observe")
        self._stop = threading.Event()
        self._reporter: threading.Thread | None = None

    def start(
        self, stats: Callable[[], Mapping[str, Any]], model_id: str, server_start: Mapping[str, Any]
    ) -> None:
        """The engine is ready. ``server_start`` holds the members of that event."""
        self.metrics.attach(stats, model_id)
        self._event("server_start", server_start)
        if self._interval > 0:
            self._reporter = threading.Thread(
                target=self._report, args=(stats,), name="throughput", daemon=True
            )
            self._reporter.start()

    def close(self) -> None:
        """Report the last interval and write everything out. The engine must have ended."""
        self._stop.set()
        if self._reporter is not None:
            self._reporter.join()
        self._worker.close()
        if self._log is not None:
            self._log.close()

    # The server's side: any thread.

    def prepared(self, request_id: str, shape: RequestShape, received_at: float) -> None:
        self._records[request_id] = self._record(request_id, shape, received_at)

    def rejected(
        self, request_id: str, shape: RequestShape, received_at: float, rejection: Rejection
    ) -> None:
        record = self._records.pop(request_id, None) or self._record(request_id, shape, received_at)
        self._event("request_rejected", records.request_rejected(record, rejection))
        self._line(logging.INFO, lines.rejected(record, rejection))

    # The engine's side: the engine thread.

    def submitted(self, request: GenerationRequest, at: float) -> None:
        record = self._records.get(request.request_id)
        if record is None:  # no server in front
            record = self._record(request.request_id, UNKNOWN_SHAPE, at)
            self._records[request.request_id] = record
        record.request = request
        self._event("request_start", records.request_start(record))
        self._line(logging.DEBUG, lines.started(record))

    def admitted(self, request: GenerationRequest, event: Admitted, queue_seconds: float) -> None:
        self.metrics.admitted(queue_seconds)

    def output(self, request: GenerationRequest, num_tokens: int, completion_tokens: int, at: float) -> None:
        record = self._records[request.request_id]
        if record.first_token_at is None:
            record.first_token_at = at
            self.metrics.first_token(at - record.received_at)
        else:
            self.metrics.later_tokens(num_tokens, at - record.last_token_at)
        record.last_token_at = at

    def finished(self, request: GenerationRequest, event: Finished) -> None:
        record = self._ended(request)
        self.metrics.finished(record, event)
        self._event("request_done", records.request_done(record, event))
        self._line(logging.INFO, lines.finished(record, event))
        if event.summary.parse_fallback_reason != FALLBACK_NONE:
            self._line(logging.WARNING, lines.parse_fallback(record, event.summary.parse_fallback_reason))

    def failed(self, request: GenerationRequest, event: Failed) -> None:
        record = self._ended(request)
        self._event("request_error", records.request_error(record, event.error))
        self._line(logging.WARNING, lines.failed(record, event.error))

    def round(self, num_rows: int, num_tokens: int, at: float) -> None:
        self.metrics.round(num_tokens)

    def _record(self, request_id: str, shape: RequestShape, received_at: float) -> RequestRecord:
        return RequestRecord(next(self._numbers), request_id, shape, received_at, self._now())

    def _ended(self, request: GenerationRequest) -> RequestRecord:
        """The request's record, let go. One that the engine ends before it took it starts here."""
        record = self._records.get(request.request_id)
        if record is None or record.request is None:
            self.submitted(request, self._now())
        record = self._records.pop(request.request_id)
        record.ended_at = self._now()
        return record

    def _event(self, event: str, members: Mapping[str, Any]) -> None:
        if self._log is not None:
            self._worker.post(self._log.write, event, self._wall(), members)

    def _line(self, level: int, text: str) -> None:
        if logger.isEnabledFor(level):
            self._worker.post(logger.log, level, "%s", text)

    def _report(self, stats: Callable[[], Mapping[str, Any]]) -> None:
        before, since = stats(), self._now()
        while True:
            is_last = self._stop.wait(self._interval)
            after, at = stats(), self._now()
            record = throughput(before, after, at - since)
            if not is_idle(record):
                self._event("throughput", record)
                self._line(logging.INFO, lines.throughput(record))
            if is_last:
                return
            before, since = after, at
