"""``GET /metrics``: Prometheus' page; under the same key rule as every other path."""

from sanic import HTTPResponse, Request

from ninfer_jax.observe.metrics import CONTENT_TYPE, Metrics
from ninfer_jax.server.http import App


def add_routes(app: App, metrics: Metrics) -> None:
    async def page(_: Request) -> HTTPResponse:
        return HTTPResponse(metrics.text(), content_type=CONTENT_TYPE)

    app.add_route(page, "/metrics", methods=["GET"])
