"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``."""

from sanic import HTTPResponse, Request

from ninfer_jax.server.http import App
from ninfer_jax.server.protocols.handler import ProtocolHandler
from ninfer_jax.server.protocols.messages import MessagesBuilder, count_tokens


def add_routes(app: App, handler: ProtocolHandler) -> None:
    async def create_message(request: Request) -> HTTPResponse | None:
        return await handler.generate(request, MessagesBuilder)

    async def count_message_tokens(request: Request) -> HTTPResponse:
        return await handler.compute(request, count_tokens)

    app.add_route(create_message, "/v1/messages", methods=["POST"], stream=True)
    app.add_route(count_message_tokens, "/v1/messages/count_tokens", methods=["POST"], stream=True)
