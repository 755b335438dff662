"""``GET /stats``: scheduler, cache and throughput counters."""

from sanic import HTTPResponse, Request

from ninfer_jax.server.http import App, json_response
from ninfer_jax.server.resident import Resident


def add_routes(app: App, resident: Resident) -> None:
    async def stats(_: Request) -> HTTPResponse:
        return json_response(resident.model().engine.stats())

    app.add_route(stats, "/stats", methods=["GET"])
