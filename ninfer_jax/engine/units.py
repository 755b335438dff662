"""The three units of work, each from submission to publication.

A unit is one transaction a row: submit, deliver the events of the unit before, wait, freeze the
cancellations, then for every row preview -> model commit -> budget -> text commit -> event, in that order,
so that the model's frontier, the counts and the text end at the same token. A row that was cancelled or
whose sink failed meanwhile commits nothing; what its text session or its sink does wrong fails that row
alone. Anything else that raises here is the engine's failure.
"""

from collections.abc import Sequence

from ninfer_jax.engine.accounting import Phase
from ninfer_jax.engine.board import Services
from ninfer_jax.engine.executor import Pending
from ninfer_jax.engine.request import EngineRequest, RequestState, local_failure
from ninfer_jax.errors import EngineError
from ninfer_jax.observe.counters import EngineCounters
from ninfer_jax.types import Delta, FinishReason, Output, PrefillProgress, Preview


class UnitRunner:
    """Runs one unit at a time on the executor."""

    def __init__(self, services: Services, counters: EngineCounters) -> None:
        self._services = services
        self._counters = counters

    def prefill(self, row: EngineRequest) -> None:
        """The owner's next chunk; the last one draws the first output token."""
        prompt = row.spec.prompt
        start = row.frontier
        end = min(start + self._services.prefill_chunk, row.prompt_len)
        end = next((split for split in row.splits if start < split < end), end)
        is_last = end == row.prompt_len
        sample = is_last and row.effective_output > 0
        chunk = prompt.token_ids[start:end]
        positions = [axis[start:end] for axis in prompt.positions] if prompt.positions else None

        self._enter(Phase.PROGRAM_SUBMIT, "submit")
        pending = self._services.executor.prefill(row.lane, chunk, start, positions=positions, sample=sample)
        produced = self._wait(pending)
        is_cancelled = row.cancel_requested
        at = self._services.now()

        self._enter(Phase.ENGINE_COMMIT_OUTPUT, "commit")
        self._counters.prefill_units += 1
        if not self._is_taken(row, is_cancelled, at):
            return
        self._advance(row, chunk)
        self._counters.computed_prefill_tokens += len(chunk)
        row.computed_prefill_tokens += len(chunk)
        if end in row.splits:
            self._capture(row)
        row.publish(PrefillProgress(end, row.prompt_len, at))
        if is_last:
            row.prefilled_at = at
            if not sample:
                row.flush_and_end(row.limit_reason, at)
            else:
                self._counters.first_tokens += self._preview_and_commit(row, produced, (), at)
            self._services.outbox.deliver()  # somebody is looking at an empty screen

    def control(self, row: EngineRequest) -> None:
        """Append forced tokens. The newest accepted token and all but the last forced one are written;
        the last forced one becomes the newest, and the next decode round takes it from there. They are
        known beforehand, so the preview comes first and the device writes exactly what is accepted."""
        limit = self._services.prefill_chunk
        forced, row.forced = row.forced[:limit], row.forced[limit:]
        self._services.clock.switch(Phase.ENGINE_COMMIT_OUTPUT)
        preview = self._preview(row, forced)
        if preview is None:
            return
        accepted = forced[: preview.accepted]
        inputs = (row.last_token, *accepted[:-1])

        self._enter(Phase.PROGRAM_SUBMIT, "submit")
        pending = self._services.executor.prefill(row.lane, inputs, row.frontier, is_output=True)
        self._wait(pending)
        is_cancelled = row.cancel_requested
        at = self._services.now()

        self._enter(Phase.ENGINE_COMMIT_OUTPUT, "commit")
        self._counters.control_units += 1
        if self._is_taken(row, is_cancelled, at):
            self._commit(row, preview, accepted, inputs, at)
            self._counters.committed_control_tokens += len(accepted)

    def decode(self, rows: Sequence[EngineRequest]) -> None:
        """One token for each of ``rows``, in one traversal."""
        self._enter(Phase.PROGRAM_SUBMIT, "submit")
        pending = self._services.executor.decode(
            [row.lane for row in rows], [row.last_token for row in rows], [row.frontier for row in rows]
        )
        produced = self._wait(pending)
        cancelled = [row.cancel_requested for row in rows]
        at = self._services.now()

        self._enter(Phase.ENGINE_COMMIT_OUTPUT, "commit")
        assert len(produced) == len(rows), "a decode round returned another number of rows"
        committed = 0
        for row, token, is_cancelled in zip(rows, produced, cancelled, strict=True):
            if self._is_taken(row, is_cancelled, at):
                committed += self._preview_and_commit(row, (token,), (row.last_token,), at)
        self._counters.decode_rounds += 1
        self._counters.decode_row_rounds += len(rows)
        self._counters.committed_decode_tokens += committed
        self._services.observer.round(len(rows), committed, at)

    def _wait(self, pending: Pending) -> list[int]:
        """Deliver what has been decided while the device computes; then its tokens."""
        self._enter(Phase.ENGINE_COMMIT_OUTPUT, "deliver")
        self._services.outbox.deliver()
        self._enter(Phase.DEVICE_WAIT, "wait")
        tokens = pending.wait()
        self._enter(Phase.PROGRAM_POST, "post")
        produced: list[int] = tokens.tolist()
        return produced

    @staticmethod
    def _is_taken(row: EngineRequest, is_cancelled: bool, at: float) -> bool:
        """Whether the row commits the unit's result. A cancelled one ends here; one whose sink failed
        while the device computed has ended already."""
        if is_cancelled:
            row.flush_and_end(FinishReason.CANCELLED, at)
        return row.state is not RequestState.TERMINAL_PENDING

    def _preview_and_commit(
        self, row: EngineRequest, produced: Sequence[int], inputs: Sequence[int], at: float
    ) -> int:
        """Take what the session accepts of ``produced``; returns how many tokens were committed.

        ``inputs`` are the ids whose state the unit wrote, the first being the row's newest accepted
        token; accepting ``n`` tokens commits ``n`` of them (prefill has committed its own already).
        """
        preview = self._preview(row, produced)
        if preview is None:
            return 0
        num = preview.accepted
        self._commit(row, preview, tuple(produced[:num]), inputs[:num], at)
        return num

    def _preview(self, row: EngineRequest, produced: Sequence[int]) -> Preview | None:
        """The session's decision; None when it broke its contract, which fails the row."""
        try:
            self._services.step("preview")
            preview = row.spec.session.preview(produced)
            _check_preview(preview, len(produced))
        except Exception as error:
            row.fail(local_failure(error, "the output session"))
            return None
        return preview

    def _commit(
        self,
        row: EngineRequest,
        preview: Preview,
        accepted: tuple[int, ...],
        inputs: Sequence[int],
        at: float,
    ) -> None:
        """Model state, counts, budget, text, event: all end at the last of ``accepted``."""
        num = len(accepted)
        if inputs:
            self._advance(row, inputs)
        row.last_token = accepted[-1]
        row.completion_tokens += num
        row.last_token_at = at
        if row.first_token_at is None:
            row.first_token_at = at
        finish = preview.finish
        if finish is None and row.remaining_output == 0:
            finish = row.limit_reason

        session = row.spec.session
        deltas: tuple[Delta, ...]
        try:
            self._services.step("session_commit")
            deltas = session.commit(accepted)
            if finish is not None:
                deltas += session.finish(finish)
        except Exception as error:
            row.fail(local_failure(error, "the output session"))
            return
        row.publish(Output(accepted, deltas, row.completion_tokens, at))
        if finish is not None:
            row.end(finish)
        else:
            row.forced = (preview.force or row.forced)[: row.remaining_output]
            row.state = RequestState.CONTROL_READY if row.forced else RequestState.DECODE_READY

    def _advance(self, row: EngineRequest, token_ids: Sequence[int]) -> None:
        self._services.cache.advance(row.id, token_ids)
        row.frontier += len(token_ids)

    def _capture(self, row: EngineRequest) -> None:
        """Keep a copy of the row's state if the cache has a use and a slot for it."""
        cache = self._services.cache
        slot = cache.capture(row.id)
        if slot is not None:
            self._services.executor.capture(row.lane, slot)
            cache.slots.freeze(slot)

    def _enter(self, phase: Phase, step: str) -> None:
        self._services.clock.switch(phase)
        self._services.step(step)


def _check_preview(preview: Preview, num_produced: int) -> None:
    is_short = preview.accepted < num_produced and preview.finish is None and not preview.force
    if not 1 <= preview.accepted <= num_produced or is_short:
        raise EngineError(
            f"the output session accepted {preview.accepted} of {num_produced} tokens without finishing"
        )
