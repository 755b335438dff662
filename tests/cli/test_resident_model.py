"""How the server's flags reach the engine."""

from dataclasses import replace

import pytest

from ninfer_jax.cli.resident_model import engine_config
from ninfer_jax.server.options import ServeOptions


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
    config = engine_config(None, replace(ServeOptions(), **flags))  # no model is needed without `auto`
    assert getattr(config, field) == value
