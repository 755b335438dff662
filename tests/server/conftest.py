"""A live server over the fake engine, for tests that do not need one of their own."""

import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.fake_frontend import ByteFrontend
from tests.server.harness import LiveServer


@pytest.fixture
def start():
    """``start(engine, **options)`` gives a running server; everything ends with the test."""
    running = []

    def begin(engine=None, frontend=None, **options):
        engine = engine or FakeEngine(max_concurrency=4)
        server = LiveServer(engine, frontend or ByteFrontend(), **options)
        running.append((server, engine))
        return server.__enter__()

    yield begin
    for server, engine in running:
        server.__exit__()
        engine.close()


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """One server over the real engine with a tiny model, for every test of this process."""
    from tests.server.real_engine import real_server  # imports jax: seconds

    with real_server(tmp_path_factory.mktemp("real") / "model") as server:
        yield server
