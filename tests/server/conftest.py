"""A live server over the fake engine, for tests that do not need one of their own."""

import pytest

from tests.server.fake_engine import FakeEngine
from tests.server.fake_frontend import ByteFrontend
from tests.server.harness import LiveServer
from tests.server.scripted import engine_for, hybrid


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


@pytest.fixture(scope="module")
def script():
    """What the module's ``server`` answers, again and again; None: a text that depends on the prompt. A
    module that wants a certain one has a fixture of this name."""


@pytest.fixture(scope="module")
def engine(script):
    """The fake engine of ``server``: its ``requests`` are those that the server made of bodies."""
    engine = FakeEngine(max_concurrency=4) if script is None else engine_for(script)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def server(engine):
    """One server with the template of a thinking model, for all tests of a module."""
    with LiveServer(engine, hybrid()) as live:
        yield live


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """One server over the real engine with a tiny model, for every test of this process."""
    from tests.server.real_engine import real_server  # imports jax: seconds

    with real_server(tmp_path_factory.mktemp("real") / "model") as server:
        yield server
