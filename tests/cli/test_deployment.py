"""How the server's flags reach the engine, and that ``auto`` means one thing."""

from dataclasses import replace

import numpy as np
import pytest

from ninfer_jax.cli.deployment import deployment, engine_config
from ninfer_jax.engine.device_memory import HEADROOM_BYTES, MemoryBudget
from ninfer_jax.engine.ledger import make_ledger
from ninfer_jax.models import llama
from ninfer_jax.server.options import ServeOptions
from tests.engine import cases


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"no_prefix_reuse": True}, "prefix_reuse", False),
        ({}, "prefix_reuse", True),
        ({"pending_timeout_ms": 250}, "pending_timeout", 0.25),
        ({"max_pending_requests": 0}, "max_pending_requests", 0),
        ({"max_concurrency": 8}, "max_concurrency", 8),
        ({"prefill_chunk": 64}, "prefill_chunk", 64),
        ({"max_context": 640}, "kv_capacity", 640),
        ({"kv_capacity": 9000}, "kv_capacity", 9000),
    ],
)
def test_flags_become_engine_settings(flags, field, value):
    assert getattr(engine_config(replace(ServeOptions(), **flags)), field) == value


def test_auto_takes_what_the_ledger_leaves():
    budget = MemoryBudget("gpu", HEADROOM_BYTES + 64_000_000, runtime=1_000_000)
    options = ServeOptions(max_context=256, kv_capacity="auto")
    specs = llama.abstract(cases.CONFIG)
    planned = deployment(cases.CONFIG, specs, "f32", np.dtype(np.float32), options, budget)
    ledger = make_ledger(planned, runtime=budget.runtime)
    assert planned.config.kv_capacity == ledger.largest_kv_capacity(budget.memory - HEADROOM_BYTES) > 256
    assert planned.config.weights == "f32"
