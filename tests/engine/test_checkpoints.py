"""The cache's seams suffice for state checkpoints: a small policy over them, on the fake device.

The fake device's state is the list of tokens that a slot has seen, so a wrong, stale or overwritten image
shows at the unit that reads it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from ninfer_jax.cache import Candidate, PageCache, ReusePath, RootOnlyPolicy, Task
from ninfer_jax.cache.policy import ROOT
from ninfer_jax.config import PAGE_SIZE, EngineConfig, pages_for
from ninfer_jax.engine import build
from ninfer_jax.engine.executor import LaneBinding
from ninfer_jax.engine.host_engine import HostEngine
from ninfer_jax.types import CacheFrontier, ModelInfo, PreparedPrompt, SamplingParams
from tests.engine import test_state_images
from tests.fakes import FakeExecutor, Recorder, expected_output, fake_engine, fake_request, fake_storage

CONFIG = EngineConfig(
    max_context=512, kv_capacity=1024, max_concurrency=2, prefill_chunk=64, device_state_slots=3
)


GREEDY, SAMPLED = SamplingParams(temperature=0.0), SamplingParams()


@dataclass
class Checkpoint:
    path: ReusePath
    tokens: list[int]
    pages: tuple[int, ...]
    slot: int


class CheckpointPolicy(RootOnlyPolicy):
    """Keeps the newest checkpoints: at every frontier of the prompt, and at the end."""

    def __init__(self) -> None:
        self.kept: list[Checkpoint] = []
        self.is_used = True

    def candidates(self, prompt: PreparedPrompt) -> tuple[Candidate, ...]:
        if not self.is_used:
            return (ROOT,)
        ids = prompt.token_ids
        found = [c for c in self.kept if c.tokens == list(ids[: len(c.tokens)]) and len(c.tokens) < len(ids)]
        if not found:
            return (ROOT,)
        best = max(found, key=lambda checkpoint: len(checkpoint.tokens))
        num_full, rest = divmod(len(best.tokens), PAGE_SIZE)
        tail = best.pages[num_full] if rest else None
        chosen = Candidate(best.path, len(best.tokens), best.pages[:num_full], tail, best.slot)
        return (chosen, ROOT)

    def capture_frontiers(self, prompt: PreparedPrompt, base: int) -> tuple[int, ...]:
        return tuple(f.position for f in prompt.frontiers if base < f.position < len(prompt.token_ids))

    def started(self, task: Task, prompt: PreparedPrompt, candidate: Candidate) -> None:
        pass

    def advanced(self, task: Task) -> None:
        pass

    def capture(self, task: Task) -> int | None:
        if not self._make_room():
            return None
        slot = self.slots.capture()
        self._keep(ReusePath.PRIVATE_TURN_CLOSURE, task, slot)
        return slot

    def finished(self, task: Task) -> None:
        if task.frontier and self._make_room():
            self.slots.freeze(task.slot)
            self._keep(ReusePath.PRIVATE_ENDPOINT, task, task.slot)

    def keeps(self, page: int) -> bool:
        return any(page in checkpoint.pages for checkpoint in self.kept)

    def evict(self, page: int) -> Sequence[int]:
        """Every checkpoint that needs the page goes."""
        pages = [page]
        for checkpoint in [c for c in self.kept if page in c.pages]:
            self.kept.remove(checkpoint)
            self.slots.release(checkpoint.slot)
            pages += checkpoint.pages
        return [other for other in dict.fromkeys(pages) if not self.keeps(other)]

    def _make_room(self) -> bool:
        """Drop the oldest checkpoint where no slot is left."""
        if not self.slots.can_capture:
            oldest = self.kept.pop(0)
            self.slots.release(oldest.slot)
            for page in oldest.pages:
                if not self.keeps(page):
                    self.forget(page)
        return self.slots.can_capture

    def _keep(self, path: ReusePath, task: Task, slot: int) -> None:
        pages = task.pages[: pages_for(task.frontier)]
        self.kept.append(Checkpoint(path, list(task.tokens), pages, slot))


class RecurrentExecutor(FakeExecutor):
    """A model whose pages are nothing without the state."""

    def bind(self, lane: int, binding: LaneBinding) -> None:
        assert binding.start == 0 or binding.image is not None, "a prefix without its state"
        super().bind(lane, binding)


def engine_with(policy: CheckpointPolicy, config: EngineConfig = CONFIG):
    storage = fake_storage(config.num_pages, config.max_concurrency, config.device_state_slots)
    cache = PageCache(storage, policy)
    executor = RecurrentExecutor(config.max_concurrency, cache.capacity, cache.slots.num_slots)
    return fake_engine(config, start=False, cache=cache, executor=executor)


def run(engine, prompts, num_tokens: int, frontiers=(), sampling=SAMPLED) -> list[Recorder]:
    """All at once, to their end; the books are checked at every boundary."""
    recorders, reservations = [], []
    for prompt in prompts:
        request = fake_request(prompt, num_tokens)
        marks = tuple(CacheFrontier(position, "client_marker") for position in frontiers)
        request = replace(request, prompt=PreparedPrompt(tuple(prompt), frontiers=marks), sampling=sampling)
        reservation, recorder = engine.reserve(), Recorder()
        reservation.submit(request, recorder)
        recorders.append(recorder)
        reservations.append(reservation)
    for _ in range(1000):
        engine.thread.step()
        engine.scheduler.services.cache.check()
        if all(recorder.terminal for recorder in recorders):
            break
    for reservation in reservations:
        reservation.release()
    return recorders


def test_the_next_turn_starts_from_the_endpoint_of_the_last() -> None:
    engine = engine_with(CheckpointPolicy())
    prompt, end = list(range(100)), 0
    for _ in range(5):
        (recorder,) = run(engine, [prompt], 10)
        assert recorder.tokens == expected_output(prompt, 10)
        assert recorder.finished.usage.cached_tokens == end
        end = len(prompt) + 9  # the last token drawn is not in the state
        prompt = [*prompt, *recorder.tokens, 7, 7, 7]
    counters = engine.stats()["counters"]
    assert counters["private_endpoint_selections"] == 4
    assert engine.stats()["gauges"]["device_state_slots_occupied"] <= CONFIG.num_slots
    engine.shutdown()


@pytest.mark.parametrize("frontier", [64, 70, 128])
def test_another_answer_starts_from_a_captured_frontier(frontier: int) -> None:
    engine = engine_with(CheckpointPolicy())
    shared = list(range(frontier))
    run(engine, [[*shared, 900, 901]], 5, frontiers=[frontier])
    (recorder,) = run(engine, [[*shared, 500]], 5, frontiers=[frontier])
    assert recorder.finished.usage.cached_tokens == frontier
    assert recorder.finished.counters["prefix_reuse_path"] == "private_turn_closure"
    assert recorder.tokens == expected_output([*shared, 500], 5)
    engine.shutdown()


def test_random_conversations_under_pressure_answer_as_from_nothing() -> None:
    """More conversations than slots and pages: checkpoints are captured, forked, dropped and evicted."""
    rng = random.Random(3)
    engine = engine_with(CheckpointPolicy(), replace(CONFIG, device_state_slots=6))
    conversations = [[rng.randrange(900) for _ in range(rng.randrange(20, 150))] for _ in range(5)]
    for _ in range(40):
        chosen = rng.sample(range(5), 2)
        prompts = [conversations[index] for index in chosen]
        frontiers = [rng.randrange(1, 90)]
        for index, recorder in zip(chosen, run(engine, prompts, 8, frontiers), strict=True):
            assert recorder.tokens == expected_output(conversations[index], 8)
            grown = [*conversations[index], *recorder.tokens, rng.randrange(900)]
            is_edited = len(grown) > 480 or rng.random() < 0.3
            conversations[index] = [*grown[:90], rng.randrange(900)] if is_edited else grown
    counters = engine.stats()["counters"]
    assert counters["private_endpoint_selections"] > 0
    assert counters["private_turn_closure_selections"] > 0
    assert counters["root_selections"] > 0
    assert counters["requests_failed"] == 0
    engine.shutdown()


def test_a_real_hybrid_answers_from_checkpoints_as_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same three prompts, each from its root and then from an endpoint, a frontier inside a page, or
    another request's frontier."""
    policy = CheckpointPolicy()
    monkeypatch.setattr(build, "prefix_policy", lambda model, config: policy)
    config = replace(test_state_images.CONFIG, device_state_slots=6)
    runner, cache = build.build_device(test_state_images.loaded_hybrid(), config)
    engine = HostEngine(ModelInfo("tiny", config.max_context, 97, "qwen3_5", 0), runner, cache, config)
    first = list(test_state_images.PROMPT)
    prompts, expected = [first, [*first[:33], 1, 2, 3]], []
    for is_used, hits in ((False, [0, 0, 0]), (True, [33, 33, len(first) + 9])):
        policy.is_used = is_used
        recorders = [run(engine, [prompt], 10, [33], GREEDY)[0] for prompt in prompts]
        if not is_used:
            prompts.append([*first, *recorders[0].tokens, 4, 5])
            recorders += run(engine, prompts[2:], 10, [33], GREEDY)
            expected = [greedy.tokens for greedy in recorders]
        assert [recorder.tokens for recorder in recorders] == expected
        assert [recorder.finished.usage.cached_tokens for recorder in recorders] == hits
    engine.shutdown()
