"""A real server on a real port, in a thread of the test process."""

import asyncio
import threading
from dataclasses import replace

import httpx

from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.server.app import create_app
from ninfer_jax.server.frontend import Frontend
from ninfer_jax.server.lifecycle import listen, serve
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.resident import Resident
from ninfer_jax.server.routes.profile import Capture
from ninfer_jax.types import Engine


class LiveServer:
    """``with LiveServer(engine, frontend) as server: server.http.post(...)``."""

    def __init__(
        self,
        engine: Engine | None,
        frontend: Frontend | None,
        *,
        heartbeat: float = 5.0,
        grace: float = 5.0,
        capture: Capture | None = None,
        monitor: ServeMonitor | None = None,
        **options: object,
    ) -> None:
        self.options = replace(ServeOptions(), **options)  # type: ignore[arg-type]
        self.resident = Resident()
        if engine is not None and frontend is not None:
            self.resident.attach(engine, frontend)
        self._grace = grace
        self._parts = {"capture": capture, "monitor": monitor, "heartbeat": heartbeat}
        self._listener = listen("127.0.0.1", 0)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "LiveServer":
        self._thread.start()
        assert self._started.wait(60), "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.stop()
        self._thread.join()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)

    def join(self, timeout: float) -> bool:
        """Whether the server has ended within ``timeout`` seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            app = create_app(self.resident, self.options, **self._parts)  # type: ignore[arg-type]
            await serve(
                app,
                self.resident,
                self._listener,
                self._stop,
                grace=self._grace,
                on_started=self._started.set,
            )

        asyncio.run(main())
