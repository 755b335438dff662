"""The operational log is as it was after each test that configures it."""

import logging

import pytest

from ninfer_jax.observe import console


@pytest.fixture(autouse=True)
def restore():
    root = logging.getLogger(console.ROOT)
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before
