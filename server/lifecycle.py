"""One process, one listening socket: from binding it to the last byte after SIGTERM."""

import asyncio
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from ninfer_jax.errors import ListenError
from ninfer_jax.server.http import App
from ninfer_jax.server.http1 import Http1Protocol
from ninfer_jax.server.resident import Resident

logger = logging.getLogger(__name__)

BACKLOG = 1024
DRAIN_POLL_SECONDS = 0.05
LAST_WRITES_SECONDS = 2.0
"""After the grace period, how long ended streams have to put their last event on the wire."""

KEEPALIVE_IDLE_SECONDS = 5
KEEPALIVE_INTERVAL_SECONDS = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_MS = 15_000


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections notice dead peers. Raises ListenError.

    Linux copies these options to every accepted connection.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except UnicodeError:  # no name can be encoded that has a label of 64 letters, or bytes that are no text
        raise ListenError(f"{host!r} is not a host name", field="--host") from None
    except OSError as error:
        raise ListenError(f"cannot listen on {host}: {error.strerror}", field="--host") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
            ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
            ("TCP_USER_TIMEOUT", USER_TIMEOUT_MS),
        ):
            if hasattr(socket, name):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is in use; choose another with --port"
        else:
            message = f"cannot listen on {host} port {port}: {error.strerror}"
        raise ListenError(message, field="--port") from None
    listener.setblocking(False)
    return listener


async def serve(
    app: App,
    resident: Resident,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    grace: float,
    on_started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until ``stop``; then refuse new work, let running requests finish for ``grace`` seconds,
    give those that remain a terminal error, and close."""
    server: Any = await app.create_server(
        sock=listener, backlog=BACKLOG, protocol=Http1Protocol, return_asyncio_server=True
    )
    await server.startup()
    await server.before_start()
    await server.start_serving()
    on_started()
    await stop.wait()
    resident.drain()
    await _until_idle(resident, grace)
    if resident.num_running:
        logger.warning("ending %d requests that did not finish in time", resident.num_running)
        resident.end_running()
        await _until_idle(resident, LAST_WRITES_SECONDS)
    await server.before_stop()
    server.server.close()
    for connection in list(server.connections):
        connection.close_if_idle()
    await server.after_stop()


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT ask for an orderly end; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def asked(number: int) -> None:
        logger.info("received %s, draining", signal.Signals(number).name)
        stop.set()
        for again in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(again)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked, number)


async def _until_idle(resident: Resident, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while resident.num_running and time.monotonic() < deadline:
        await asyncio.sleep(DRAIN_POLL_SECONDS)
