"""``ninfer-jax serve [MODEL]``: an HTTP server over one resident model."""

import argparse
import asyncio
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ninfer_jax.cli.parser import add_model
from ninfer_jax.errors import EngineError
from ninfer_jax.observe import console
from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.observe.request_log import RequestLog
from ninfer_jax.server.app import create_app, silence_framework_logs
from ninfer_jax.server.lifecycle import listen, serve, stop_on_signals
from ninfer_jax.server.options import ServeOptions, resolve, unknown_variables
from ninfer_jax.server.options import add_arguments as add_options
from ninfer_jax.server.resident import Resident

HELP = "Serve a model over HTTP: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages."

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    options = resolve(args, os.environ)
    console.configure(options.log_level)
    silence_framework_logs()
    for variable in unknown_variables(os.environ):
        logger.warning("the environment sets %s, which no flag reads", variable)
    log_path = options.request_log_jsonl
    monitor = ServeMonitor(
        request_log=RequestLog(Path(log_path), model=args.model) if log_path else None,
        interval=options.log_stats_interval_ms / 1000,
    )
    listener = listen(options.host, options.port)
    resident = Resident()
    startup = Startup(options, args.model, resident, monitor)

    async def main() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        loop = asyncio.get_running_loop()

        def give_up() -> None:
            loop.call_soon_threadsafe(stop.set)

        def begin() -> None:
            startup.begin(listener.getsockname(), give_up)

        app = create_app(resident, options, monitor=monitor, capture=_capture(options.profile_dir))
        grace = options.shutdown_grace_ms / 1000
        await serve(app, resident, listener, stop, grace=grace, on_started=begin)

    with asyncio.Runner(loop_factory=_fast_loop()) as runner:
        runner.run(main())
    return startup.finish()


class Startup:
    """Loads the model beside the running HTTP server, so that ``/health`` can say 503 meanwhile."""

    def __init__(
        self, options: ServeOptions, model: Path | None, resident: Resident, monitor: ServeMonitor
    ) -> None:
        self._options = options
        self._model = model
        self._resident = resident
        self._monitor = monitor
        self._error: BaseException | None = None
        self._shutdown: Callable[[], None] | None = None
        self._is_loading = False

    def begin(self, address: tuple[str, int], give_up: Callable[[], None]) -> None:
        """Load on a thread of its own; from now on ``finish`` does not wait for it."""
        logger.info("listening on %s; /health is 503 until the model is ready", _url(address))
        self._is_loading = True
        threading.Thread(target=self.load, args=(address, give_up), name="load", daemon=True).start()

    def load(self, address: tuple[str, int], give_up: Callable[[], None]) -> None:
        """Calls ``give_up`` when there will be no model."""
        try:
            self._load(address, functools.partial(self.engine_failed, give_up))
        except BaseException as error:
            self._error = error
            self._is_loading = False  # before the server ends: ``finish`` asks
            give_up()
        self._is_loading = False

    def _load(self, address: tuple[str, int], on_failure: Callable[[BaseException], None]) -> None:
        from ninfer_jax.cli.resident_model import load_resident  # imports jax: seconds

        started = time.monotonic()
        loaded = load_resident(self._model, self._options, self._monitor, on_failure)
        engine = loaded.engine
        self._shutdown = engine.shutdown
        self._monitor.start(engine.stats, loaded.model_id, loaded.server_start)
        self._resident.attach(engine, loaded.frontend)
        _announce(loaded.model_id, address, self._options, time.monotonic() - started)

    def engine_failed(self, give_up: Callable[[], None], error: BaseException) -> None:
        """Requests have had their errors and ``/health`` says 503; with ``--exit-on-failure`` also leave."""
        logger.critical("the engine has failed: %s", type(error).__name__)
        if self._options.exit_on_failure:
            self._error = EngineError("the engine has failed")
            give_up()

    def finish(self) -> int:
        """The exit code, after the HTTP server has ended."""
        if self._is_loading:  # asked to stop while XLA compiles, which cannot be interrupted
            sys.stderr.flush()
            os._exit(0)
        if self._shutdown is not None:
            self._shutdown()
        self._monitor.close()
        if self._error is not None:
            raise self._error
        logger.info("stopped")
        return 0


def _capture(folder: str | None) -> Callable[[float], Path] | None:
    """What ``POST /profile`` does; None leaves the route out."""
    if folder is None:
        return None

    def capture(seconds: float) -> Path:
        from ninfer_jax.engine.trace import capture_for  # imports jax: seconds

        return capture_for(Path(folder), seconds)

    return capture


def _announce(model_id: str, address: tuple[str, int], options: ServeOptions, seconds: float) -> None:
    url = _url(address)
    key = "" if options.api_key is None else " -H 'Authorization: Bearer YOUR_KEY'"
    logger.info("ready in %.1f s: %s serves %s", seconds, url, model_id)
    logger.info(
        "try: curl %s/v1/chat/completions%s -H 'Content-Type: application/json'"
        ' -d \'{"messages": [{"role": "user", "content": "Say hello."}]}\'',
        url,
        key,
    )


def _url(address: tuple[str, int]) -> str:
    host, port = address[0], address[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
