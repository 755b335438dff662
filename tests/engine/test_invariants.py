"""The scheduler's invariants: every random run is checked against each of them.

The suite plays 2,000 runs, always the same; ``NINFER_SCENARIOS=100000 pytest -n 2
tests/engine/test_invariants.py`` plays that many, freshly random, at about 10 ms each.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, seed, settings

from ninfer_jax.config import PAGE_SIZE
from ninfer_jax.engine.request import effective_output
from ninfer_jax.errors import ContextLengthExceededError, ServerOverloadedError
from ninfer_jax.types import Admitted, Failed, Finished, FinishReason, Output, PrefillProgress
from tests.engine.scenarios import Scenario, scenarios
from tests.engine.simulation import Client, Trace, is_timeout, simulate
from tests.fakes import next_token

NUM_SHARDS = 20
"""Tests that the runs are divided among, for pytest's workers."""
SCENARIOS = os.environ.get("NINFER_SCENARIOS")
INVARIANTS: list[Callable[[Trace], None]] = []


def invariant(check: Callable[[Trace], None]) -> Callable[[Trace], None]:
    """A rule that holds in every run; its number is the one in the design of the context cache."""
    INVARIANTS.append(check)
    return check


@pytest.mark.parametrize("shard", range(NUM_SHARDS))
def test_random_runs_keep_every_invariant(shard: int) -> None:
    @settings(
        max_examples=int(SCENARIOS or 2000) // NUM_SHARDS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(scenarios())
    def play(scenario: Scenario) -> None:
        trace = simulate(scenario)
        for check in INVARIANTS:
            check(trace)

    (play if SCENARIOS else seed(shard)(play))()


def output_bound(client: Client, trace: Trace) -> tuple[int, FinishReason]:
    return effective_output(client.arrival.output, len(client.prompt), trace.scenario.config.max_context)


@invariant
def invariant_01_pages_are_conserved(trace: Trace) -> None:
    """free + held + cached == capacity at every step (inside the run), and all come back at the end."""
    counts = trace.engine.scheduler.services.cache.counts()
    assert counts.held == counts.reserved == counts.shared == 0
    assert counts.free + counts.cached == counts.capacity


@invariant
def invariant_02_lanes_and_claims_come_back(trace: Trace) -> None:
    board = trace.engine.scheduler.board
    assert board.active() == []
    assert not board.live
    assert not any(board.ledger.used)
    assert not trace.engine.scheduler.services.executor.lanes  # type: ignore[attr-defined]


@invariant
def invariant_03_admitted_requests_never_fail(trace: Trace) -> None:
    for client in trace.clients:
        if client.recorder.admitted:
            assert isinstance(client.recorder.terminal, Finished)


@invariant
def invariant_04_entitlement_is_the_whole_request(trace: Trace) -> None:
    for client in trace.clients:
        if client.lane_at_release is not None:
            output, _ = output_bound(client, trace)
            written = len(client.prompt) + max(output, 1) - 1
            assert len(client.lane_at_release.binding.pages) == -(-written // PAGE_SIZE)


@invariant
def invariant_05_finish_reason_tells_the_bound(trace: Trace) -> None:
    for client in trace.completed():
        output, bound = output_bound(client, trace)
        num_tokens = len(client.recorder.tokens)
        match client.recorder.finished.reason:
            case FinishReason.STOP:
                assert num_tokens == client.arrival.stop_after
            case FinishReason.CANCELLED:
                assert client.cancelled_at is not None
                assert num_tokens <= output
            case reason:
                assert reason is bound
                assert num_tokens == output


@invariant
def invariant_07_impossible_requests_are_refused_at_once(trace: Trace) -> None:
    for client in trace.clients:
        too_long = len(client.prompt) > trace.scenario.config.max_context
        if not isinstance(client.refused, ServerOverloadedError):
            assert too_long == isinstance(client.refused, ContextLengthExceededError)


@invariant
def invariant_08_and_13_only_borrowers_overtake_a_blocked_head(trace: Trace) -> None:
    for admission in trace.admissions:
        if admission.overtaken:
            assert not admission.head_fitted
            assert admission.is_protected
            assert not admission.skipped_borrower


@invariant
def invariant_14_one_admission_a_boundary_and_one_prefill_owner(trace: Trace) -> None:
    steps = [admission.step for admission in trace.admissions]
    assert len(steps) == len(set(steps))
    assert not any(admission.had_owner for admission in trace.admissions)
    assert all(unit.others.count("prefill") <= 1 for unit in trace.units)


@invariant
def invariant_15_a_decode_round_before_an_admission_where_rows_are_ready(trace: Trace) -> None:
    for admission in trace.admissions:
        if admission.ready:
            assert trace.units[admission.num_units - 1].kind == "decode"


@invariant
def invariant_16_the_deadline_is_absolute(trace: Trace) -> None:
    timeout = trace.scenario.config.pending_timeout
    for client in trace.clients:
        deadline = client.reserved_at + timeout
        if client.admitted_at is not None:
            assert client.admitted_at < deadline
            assert not is_timeout(client)
        if is_timeout(client):
            assert client.ended_at is not None
            assert deadline <= client.ended_at <= deadline + 1


@invariant
def invariant_17_outstanding_requests_are_bounded(trace: Trace) -> None:
    config = trace.scenario.config
    capacity = config.max_concurrency + config.max_pending_requests
    assert trace.max_outstanding <= capacity
    assert all(outstanding == capacity for outstanding, _ in trace.overloads)
    assert trace.stats["outstanding"] == 0


@invariant
def invariant_18_a_round_holds_every_ready_row(trace: Trace) -> None:
    for unit in trace.units:
        if unit.kind == "decode":
            assert unit.lanes == unit.ready


@invariant
def invariant_19_decode_alternates_with_the_rest(trace: Trace) -> None:
    for before, unit in zip(trace.units, trace.units[1:], strict=False):
        if unit.ready and unit.others:
            assert (unit.kind == "decode") == (before.kind != "decode")


@invariant
def invariant_20_cancellation_is_prompt_and_commits_nothing(trace: Trace) -> None:
    """Seen within one unit and one boundary; every other request is untouched (see 24)."""
    for client in trace.clients:
        if client.cancelled_at is not None:
            assert len(client.recorder.tokens) == client.tokens_at_cancel
        if client.cancelled_at is not None and client.ended_at is not None:
            assert client.ended_at <= client.cancelled_at + 1


@invariant
def invariant_21_model_usage_and_text_end_at_the_same_token(trace: Trace) -> None:
    for client in trace.completed():
        tokens = client.recorder.tokens
        assert client.session.committed == tokens
        assert client.recorder.finished.usage.completion_tokens == len(tokens)
        assert client.session.finished == [client.recorder.finished.reason]
        lane = client.lane_at_release
        if lane is not None and client.cancelled_at is None:
            assert lane.history == client.prompt + tokens[:-1]
            assert lane.counted == tokens[:-1]


@invariant
def invariant_22_and_23_events_come_in_order(trace: Trace) -> None:
    for client in trace.clients:
        events = client.recorder.events
        if not client.recorder.admitted:
            assert all(isinstance(event, Finished | Failed) for event in events)
            continue
        assert len(client.recorder.admitted) == 1
        assert isinstance(events[0], Admitted)
        processed = [event.processed for event in client.recorder.progress]
        assert processed == sorted(processed)
        assert processed[0] == events[0].cached_tokens
        first_output = next((i for i, event in enumerate(events) if isinstance(event, Output)), None)
        if first_output is not None:
            assert processed[-1] == len(client.prompt)
            assert not any(isinstance(event, PrefillProgress) for event in events[first_output:])


@invariant
def invariant_24_output_does_not_depend_on_company_or_reuse(trace: Trace) -> None:
    """Every token is what a lone run from nothing gives; forced tokens stand where they were forced."""
    for client in trace.clients:
        history, arrival = list(client.prompt), client.arrival
        for index, token in enumerate(client.recorder.tokens):
            forced = None if arrival.force_at is None else index - arrival.force_at
            is_forced = forced is not None and 0 <= forced < arrival.num_forced
            assert token == (forced if is_forced else next_token(history, client.index))
            history.append(token)


@invariant
def invariant_43_and_44_slots_stay_within_their_number(trace: Trace) -> None:
    lanes = trace.scenario.config.max_concurrency
    for client in trace.clients:
        if client.stats_at_end is not None:
            assert client.stats_at_end["gauges"]["device_state_slots_occupied"] <= lanes
    assert all(len(unit.lanes) <= lanes for unit in trace.units)


@invariant
def invariant_71_counters_agree_with_usage(trace: Trace) -> None:
    counters = trace.stats["counters"]
    admitted = [client for client in trace.clients if client.recorder.admitted]
    selections = [value for name, value in counters.items() if name.endswith("_selections")]
    assert sum(selections) == counters["requests_admitted"] == len(admitted)
    usages = [client.recorder.finished.usage for client in admitted]
    assert counters["prompt_tokens"] == sum(usage.prompt_tokens for usage in usages)
    assert counters["reused_prompt_tokens"] == sum(usage.cached_tokens for usage in usages)
    generated = ("first_tokens", "committed_decode_tokens", "committed_control_tokens")
    assert sum(counters[name] for name in generated) == sum(usage.completion_tokens for usage in usages)
    computed = [client.recorder.finished.counters["computed_prefill_tokens"] for client in admitted]
    assert counters["computed_prefill_tokens"] == sum(computed)
    for usage, num_computed in zip(usages, computed, strict=True):
        if usage.completion_tokens:
            assert usage.cached_tokens + num_computed == usage.prompt_tokens
    ended = sum(counters["requests_finished"].values()) + counters["requests_failed"]
    assert ended == counters["requests_submitted"]


@invariant
def invariant_72_statistics_at_the_end_show_the_released_resources(trace: Trace) -> None:
    for client in trace.clients:
        if client.stats_at_end is not None:
            reserved = client.stats_at_end["gauges"]["device_main_pages_reserved"]
            assert reserved == client.reserved_pages_at_end
