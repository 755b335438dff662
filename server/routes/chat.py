"""``POST /v1/chat/completions``."""

from sanic import HTTPResponse, Request

from ninfer_jax.server.http import App
from ninfer_jax.server.protocols.chat import ChatBuilder
from ninfer_jax.server.protocols.handler import ProtocolHandler


def add_routes(app: App, handler: ProtocolHandler) -> None:
    async def complete(request: Request) -> HTTPResponse | None:
        return await handler.generate(request, ChatBuilder)

    app.add_route(complete, "/v1/chat/completions", methods=["POST"], stream=True)
