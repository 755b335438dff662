"""A random hybrid of a registered model's widths and few of its layers: speeds, and what must hold."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import jax
import numpy as np

from ninfer_jax.artifact.loader import activation_dtype
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.config import EngineConfig, WeightFormat
from ninfer_jax.engine.decode_traffic import decode_traffic
from ninfer_jax.engine.device_memory import HEADROOM_BYTES, present_budget
from ninfer_jax.engine.ledger import Deployment, make_ledger
from ninfer_jax.engine.shapes import ShapeLadder
from ninfer_jax.errors import NinferError
from ninfer_jax.models.base import ArraySpec
from ninfer_jax.models.weights import spec_leaves
from profiles.device import sizes
from profiles.device.lanes import Continuation, Lanes
from profiles.device.random_model import random_model
from profiles.device.report import Row, Status
from profiles.device.sections import DENSE, SPARSE
from profiles.device.steps import Rows, Settings, Step

COMPILATION = "/jax/core/compile/backend_compile_duration"
SAME_HIDDEN = {"float32": 1e-3, "bfloat16": 5e-2}
"""How far a hidden may be from the same token's in another batch or chunk, over its own length: sums are
taken in another order, and rounded to the activations' type in every layer."""
NEAR_TIE = {"float32": 1e-3, "bfloat16": 0.15}
"""Tokens whose logits are nearer than this may change places for the same reason; logits have deviation 1."""


@dataclass(frozen=True, slots=True)
class Case:
    """``pieces`` are two ways to cut the same prompt of ``checked`` tokens."""

    identity: str
    layers: int
    prompts: tuple[int, int]
    buckets: tuple[int, ...]
    pieces: tuple[int, int]
    checked: int
    context: int
    rows: int
    tokens: int
    rounds: int

    @property
    def config(self) -> EngineConfig:
        longest = max(*self.prompts, self.checked) + 64
        return EngineConfig(
            max_context=longest,
            kv_capacity=self.rows * (longest + 64),
            max_concurrency=self.rows,
            prefill_chunk=self.buckets[-1],
        )


IDENTITIES = {DENSE: (sizes.DENSE, 8), SPARSE: (sizes.SPARSE, 4)}


def case_of(settings: Settings) -> Case:
    identity, layers = IDENTITIES[settings.section]
    if settings.rehearse:
        return Case(identity, 4, (32, 96), (16, 32), (16, 32), 70, 32, 3, 6, 4)
    return Case(identity, layers, (512, 4096), (256, 512, 1024), (256, 1024), 2000, 512, 8, 32, 32)


def steps(settings: Settings) -> Sequence[Step]:
    check = HybridCheck(settings, case_of(settings))
    return [
        Step("build", check.build),
        Step("decode", check.decode),
        Step("prefill", check.prefill),
        Step("same tokens", check.same_tokens),
        Step("memory and compilations", check.books),
    ]


class HybridCheck:
    """Steps over one resident model, which the first one that needs it builds."""

    def __init__(self, settings: Settings, case: Case) -> None:
        self._section, self._limits, self._case = settings.section, settings.limits, case
        self._tiny = settings.rehearse
        self._rng = np.random.default_rng(0)
        self._lanes: Lanes | None = None
        self._deployment: Deployment
        self._compilations: list[float] = []
        self._was_tried = False

    def build(self) -> Rows:
        self._was_tried = True
        case, begin = self._case, time.perf_counter()
        hf_config = sizes.hf_config(case.identity, case.layers, tiny=self._tiny)
        self._deployment = _deployment(hf_config, case)
        model = random_model(case.identity, hf_config, self._deployment.weights)
        seconds = time.perf_counter() - begin
        note = f"{model.num_parameters / 1e9:.2f} G parameters in {model.weight_format}, {case.layers} layers"
        yield Row(self._section, "weights drawn", "measured", seconds, "s", note=note)
        begin = time.perf_counter()
        lanes = Lanes(model, case.config, ShapeLadder((1, case.rows), case.buckets))
        lanes.continuation([self._prompt(case.context)], 0, 2)
        lanes.scores(lanes.hidden(0))
        seconds = time.perf_counter() - begin
        yield Row(self._section, f"{3 + len(case.buckets)} programs compiled", "measured", seconds, "s")
        self._lanes = lanes

    def decode(self) -> Rows:
        """Rounds that wait for their tokens, as serving must, beside rounds that are queued: the difference
        is how long the device has nothing to do."""
        with self._built() as lanes:
            for rows in (1, self._case.rows):
                yield from self._decode(lanes, rows)

    def _decode(self, lanes: Lanes, rows: int) -> Rows:
        case, name = self._case, f"B={rows}, context {self._case.context:,}"
        tokens = [lanes.start(lane, self._prompt(case.context))[0] for lane in range(rows)]
        frontiers = [case.context] * rows
        submits, rounds = [], []
        for _ in range(case.rounds):
            begin = time.perf_counter()
            pending = lanes.runner.decode(range(rows), tokens, frontiers)
            submits.append(time.perf_counter() - begin)
            tokens = pending.wait().tolist()
            rounds.append(time.perf_counter() - begin)
            frontiers = [frontier + 1 for frontier in frontiers]
        begin = time.perf_counter()
        for _ in range(case.rounds):
            pending = lanes.runner.decode(range(rows), tokens, frontiers)
        pending.wait()
        queued = (time.perf_counter() - begin) / case.rounds
        lanes.stop(rows)
        median = statistics.median(rounds)
        traffic = decode_traffic(self._deployment, batch=rows, context=case.context)
        limit = 1e3 * self._limits.seconds(traffic.total) if self._limits else None
        yield self._measured(f"decode round {name}", 1e3 * median, "ms", limit, nbytes=traffic.total)
        yield self._measured(f"the same, rounds queued, {name}", 1e3 * queued, "ms", limit)
        yield self._measured(f"idle between rounds, {name}", 1e6 * max(0.0, median - queued), "µs")
        submit = 1e6 * statistics.median(submits)
        yield self._measured(f"host's call of a round, {name}", submit, "µs")

    def prefill(self) -> Rows:
        with self._built() as lanes:
            for length in self._case.prompts:
                seconds = []
                for _ in range(3):
                    seconds.append(lanes.start(0, self._prompt(length))[1])
                    lanes.stop(1)
                limit = length / self._prefill_limit(length) if self._limits else None
                rate = length / statistics.median(seconds)
                yield self._measured(f"prefill of {length:,}", rate, "tok/s", limit)

    def same_tokens(self) -> Rows:
        """Greedy decoding must not depend on who else is in the batch, nor on how a prompt is cut."""
        case = self._case
        with self._built() as lanes:
            prompts = [self._prompt(case.checked) for _ in range(case.rows)]
            alone = lanes.continuation([prompts[0]], 0, case.tokens, piece=case.pieces[1])
            row = case.rows // 2
            others = [*prompts[1 : row + 1], prompts[0], *prompts[row + 1 :]]
            among = lanes.continuation(others, row, case.tokens, piece=case.pieces[1], forced=alone.tokens)
            yield self._agreement(lanes, f"alone or among {case.rows}", alone, among)
            cut = lanes.continuation(prompts[:1], 0, case.tokens, piece=case.pieces[0], forced=alone.tokens)
            yield self._agreement(lanes, f"chunks of {case.pieces[0]} or {case.pieces[1]}", alone, cut)

    def _agreement(self, lanes: Lanes, name: str, one: Continuation, other: Continuation) -> Row:
        """Equal tokens, but for near ties, from nearly equal hidden states."""
        activation = self._deployment.activation.name
        lengths = np.linalg.norm(one.hidden, axis=1)
        error = float((np.linalg.norm(one.hidden - other.hidden, axis=1) / lengths).max())
        gaps = []
        for index, (mine, theirs) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            if mine != theirs:
                scores = lanes.scores(one.hidden[index])
                gaps.append(float(scores[mine] - scores[theirs]))
        is_right = error <= SAME_HIDDEN[activation] and all(gap <= NEAR_TIE[activation] for gap in gaps)
        note = f"{len(one.tokens) - len(gaps)} of {len(one.tokens)} greedy tokens equal"
        if gaps:
            note += f"; logits of the others {max(gaps):.3f} apart (a near tie: {NEAR_TIE[activation]})"
        status: Status = "ok" if is_right else "FAILED"
        tolerance = SAME_HIDDEN[activation]
        return Row(self._section, f"same tokens {name}", status, error=error, tolerance=tolerance, note=note)

    def books(self) -> Rows:
        with self._built() as lanes:
            ledger = make_ledger(self._deployment, temporaries=lanes.runner.temporaries)
            planned = make_ledger(self._deployment).total
        count = len(self._compilations)
        note = f"{count} after warm-up" if count else "none after warm-up"
        yield Row(self._section, "compilations", "FAILED" if count else "ok", note=note)
        stats = jax.local_devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        if peak is None:
            yield Row(self._section, "memory", "skipped", note="this device does not tell how much is in use")
            return
        note = f"planned {planned / 1e9:.2f} GB; {ledger.total / 1e9:.2f} with temporaries as compiled"
        is_right = peak <= planned + HEADROOM_BYTES
        if not is_right:
            note += f"; more than planned, with {HEADROOM_BYTES / 1e9:.2f} GB of headroom"
        status: Status = "ok" if is_right else "FAILED"
        yield Row(self._section, "memory at its peak", status, peak / 1e9, "GB", planned / 1e9, note=note)

    @contextmanager
    def _built(self) -> Iterator[Lanes]:
        """The model, whose programs are all compiled; compilations inside are counted."""
        if self._lanes is None and not self._was_tried:
            list(self.build())  # this process was started after a failure, without that step
        if self._lanes is None:
            raise NinferError("the model could not be built")
        listen = self._listen
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            yield self._lanes
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)

    def _listen(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILATION:
            self._compilations.append(duration_secs)

    def _prompt(self, length: int) -> list[int]:
        ids: list[int] = self._rng.integers(0, self._deployment.model.sample_vocab_size, length).tolist()
        return ids

    def _prefill_limit(self, length: int) -> float:
        """Seconds for the products alone, of all tokens with every weight of a layer."""
        assert self._limits is not None
        specs = [spec for spec in spec_leaves(self._deployment.specs) if spec.axes[0] != "vocab"]
        experts = self._deployment.model.experts

        def share(spec: ArraySpec) -> float:
            return experts.top_k / experts.count if experts and spec.axes[0] == "experts" else 1.0

        weights = sum(float(np.prod(spec.shape)) * share(spec) for spec in specs if spec.role == "matmul")
        return self._limits.seconds(0, 2 * length * weights)

    def _measured(
        self, name: str, value: float, unit: str, limit: float | None = None, nbytes: int | None = None
    ) -> Row:
        return Row(self._section, name, "measured", value, unit, limit, nbytes=nbytes)


def _deployment(hf_config: dict[str, object], case: Case) -> Deployment:
    """In the widest weights that fit; float32 on a CPU, where nothing else is exact."""
    formats: tuple[WeightFormat, ...] = ("f32",) if jax.default_backend() == "cpu" else ("bf16", "int8")
    for weights in formats:
        _, config, specs = recognise(hf_config)
        deployment = Deployment(config, specs, case.config, weights, activation_dtype(weights))
        if make_ledger(deployment).total <= present_budget().memory:
            break
    return deployment
