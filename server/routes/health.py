"""``GET /health``: whether the engine can accept work. Never asks for a key."""

from sanic import HTTPResponse, Request

from ninfer_jax.server.http import App, json_response
from ninfer_jax.server.resident import Resident


def add_routes(app: App, resident: Resident) -> None:
    async def health(_: Request) -> HTTPResponse:
        state = resident.health()
        body = {"status": "ok" if state.ok else "unavailable", "model_loaded": state.model_loaded}
        return json_response(body, 200 if state.ok else 503)

    app.add_route(health, "/health", methods=["GET", "HEAD"])
