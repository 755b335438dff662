"""The application: one factory, no module state. Routes are thin; protocols do the work."""

import logging
import secrets
import time
from concurrent.futures import ThreadPoolExecutor

from sanic import HTTPResponse, Request, Sanic
from sanic.config import Config
from sanic.response import BaseHTTPResponse

from ninfer_jax.observe.monitor import ServeMonitor
from ninfer_jax.server import auth, cors, sse
from ninfer_jax.server.error_handler import JsonErrorHandler
from ninfer_jax.server.http import App
from ninfer_jax.server.http1 import Http1Request
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.protocols.handler import ProtocolHandler, Sources
from ninfer_jax.server.request_ids import request_id_of
from ninfer_jax.server.resident import Resident
from ninfer_jax.server.response_store import ResponseStore
from ninfer_jax.server.routes import chat, health, messages, metrics, models, profile, responses, stats

NUM_WORKERS = 4
DISCARDED_BODY_BYTES = 64 << 20
"""How much of a refused body is read and thrown away, so that the client sees the answer."""


def system_sources() -> Sources:
    return Sources(
        now=time.time,
        new_id=lambda prefix: prefix + secrets.token_hex(12),
        new_seed=lambda: secrets.randbits(64),
    )


def create_app(
    resident: Resident,
    options: ServeOptions,
    *,
    sources: Sources | None = None,
    monitor: ServeMonitor | None = None,
    capture: profile.Capture | None = None,
    heartbeat: float = sse.HEARTBEAT_SECONDS,
) -> App:
    """The HTTP application over a model that may still be loading."""
    app = Sanic(
        f"ninfer-{secrets.token_hex(8)}",  # Sanic keeps a registry by name
        config=Config(env_prefix=""),
        request_class=Http1Request,
        error_handler=JsonErrorHandler(),
        configure_logging=False,
    )
    app.config.update(
        {
            "TOUCHUP": False,  # it rewrites the framework's methods for the whole process
            "ACCESS_LOG": False,
            "REQUEST_MAX_SIZE": options.max_request_bytes + DISCARDED_BODY_BYTES,
            "REQUEST_TIMEOUT": max(60.0, options.pending_timeout_ms / 1000 + 5),
            "RESPONSE_TIMEOUT": float("inf"),  # a generation takes as long as it takes
        }
    )
    sources = sources or system_sources()
    workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="prepare")
    handler = ProtocolHandler(resident, options, sources, workers, observer=monitor, heartbeat=heartbeat)
    _add_middleware(app, options)
    health.add_routes(app, resident)
    stats.add_routes(app, resident)
    models.add_routes(app, resident, options, created=int(sources.now()))
    chat.add_routes(app, handler)
    responses.add_routes(app, handler, _response_store(options))
    messages.add_routes(app, handler)
    if monitor is not None:
        metrics.add_routes(app, monitor.metrics)
    if capture is not None:
        profile.add_routes(app, capture)
    app.after_server_stop(lambda *_: workers.shutdown(wait=False, cancel_futures=True))
    return app


def _response_store(options: ServeOptions) -> ResponseStore:
    return ResponseStore(
        max_records=options.response_store_max_records, max_bytes=options.response_store_max_mib << 20
    )


def _add_middleware(app: App, options: ServeOptions) -> None:
    async def before(request: Request) -> HTTPResponse | None:
        if options.cors and cors.is_preflight(request):
            return cors.preflight_answer(request)
        auth.check_key(request, options.api_key)
        return None

    async def after(request: Request, response: BaseHTTPResponse) -> None:
        request_id = request_id_of(request)
        response.headers["x-request-id"] = request_id
        if request.path.startswith("/v1/messages"):
            response.headers["request-id"] = request_id
        if options.cors:
            cors.add_headers(response.headers)

    app.register_middleware(before, "request")
    app.register_middleware(after, "response")


def silence_framework_logs() -> None:
    """Sanic's own lines say nothing that ours do not, and would mix their form into the log."""
    for name in ("sanic.root", "sanic.error", "sanic.access", "sanic.server", "sanic.websockets"):
        logging.getLogger(name).disabled = True
