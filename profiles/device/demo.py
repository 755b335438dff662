"""SmolLM2-135M through the Python API: the text it must give, and the speeds that a user sees."""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.artifact.loader import activation_dtype, default_weights, open_checkpoint
from ninfer_jax.artifact.recognise import recognise
from ninfer_jax.cli.bench_engine import EngineTarget
from ninfer_jax.cli.bench_measures import experiments
from ninfer_jax.cli.bench_measures import measure as measure_targets
from ninfer_jax.config import EngineConfig
from ninfer_jax.engine.decode_traffic import decode_traffic
from ninfer_jax.engine.inference_engine import InferenceEngine
from ninfer_jax.engine.ledger import Deployment
from ninfer_jax.errors import ConfigError
from profiles.device.report import Row
from profiles.device.steps import Rows, Settings, Step

EXPECTED = Path(__file__).parent / "expected_text.json"
SMALL = EngineConfig(max_context=256, kv_capacity=256, prefill_chunk=64)
SERVED = EngineConfig(max_context=2048, kv_capacity=8 * 2048, max_concurrency=8, prefill_chunk=512)
"""As the ``serve`` section starts the server, which then finds its programs in the cache."""
REPEATS = 2


def steps(settings: Settings) -> Sequence[Step]:
    try:
        path = demo_model()
    except ConfigError as error:
        return [Step("SmolLM2", partial(_missing, settings, str(error)))]
    found = [Step("greedy text", partial(_text, settings, path))]
    return found if settings.rehearse else [*found, Step("speeds", partial(_speeds, settings, path))]


def _missing(settings: Settings, why: str) -> Rows:
    yield Row(settings.section, "SmolLM2", "skipped", note=why)


def _text(settings: Settings, path: Path) -> Rows:
    """In float32 no choice of these texts is near enough to a tie for the order of sums to matter."""
    chats = json.loads(EXPECTED.read_text())[: 1 if settings.rehearse else None]
    with InferenceEngine(path, config=SMALL, weights="f32") as engine:
        for chat in chats:
            text = engine.generate(chat["messages"], temperature=0.0, max_tokens=chat["max_tokens"])
            name = f"float32 text of {chat['max_tokens']} tokens"
            if text == chat["text"]:
                yield Row(settings.section, name, "ok", note="as on a CPU")
                continue
            same = next(
                (i for i, pair in enumerate(zip(text, chat["text"], strict=False)) if pair[0] != pair[1]), 0
            )
            note = f"differs from a CPU's after {text[:same][-40:]!r}: {text[same:][:20]!r}"
            yield Row(settings.section, name, "FAILED", note=note)


def _speeds(settings: Settings, path: Path) -> Rows:
    begin = time.perf_counter()
    engine = InferenceEngine(path, config=SERVED)
    seconds = time.perf_counter() - begin
    weights = default_weights()
    note = f"{weights} weights, nothing compiled before"
    yield Row(settings.section, "engine ready", "measured", seconds, "s", note=note)
    deployment = _deployment(path)
    target = EngineTarget(engine.engine, engine.shutdown)
    try:
        chosen = [one for one in experiments() if one.name in ("prefill", "decode")]
        results = measure_targets([target], chosen, REPEATS)
    finally:
        target.close()
    for metric in results.metrics:
        value = results.median(target.name, metric)
        limit = None
        if settings.limits is not None and metric.name.startswith("decode B="):
            rows = int(metric.name.removeprefix("decode B="))
            traffic = decode_traffic(deployment, batch=rows, context=160)
            limit = rows / settings.limits.seconds(traffic.total)
        yield Row(settings.section, metric.name, "measured", value, metric.unit, limit)


def _deployment(path: Path) -> Deployment:
    weights = default_weights()
    _, config, specs = recognise(open_checkpoint(path).config)
    return Deployment(config, specs, SERVED, weights, activation_dtype(weights))
