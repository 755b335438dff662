"""``/v1/responses``: create, count, and the resources of what is stored."""

from collections.abc import Mapping
from typing import Any

from sanic import HTTPResponse, Request

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.json_values import parse_json
from ninfer_jax.server.fields import invalid, one_of
from ninfer_jax.server.http import App, json_response
from ninfer_jax.server.protocols.handler import ProtocolHandler
from ninfer_jax.server.protocols.refusals import unsupported
from ninfer_jax.server.protocols.request import RequestContext
from ninfer_jax.server.protocols.responses import ResponsesBuilder
from ninfer_jax.server.response_store import ResponseStore

ROOT = "/v1/responses"
DEFAULT_LIMIT, MAX_LIMIT = 20, 100
_FALSE = ("", "0", "false")


def add_routes(app: App, handler: ProtocolHandler, store: ResponseStore) -> None:
    def builder(context: RequestContext) -> ResponsesBuilder:
        return ResponsesBuilder(context, store)

    def count_tokens(context: RequestContext, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return builder(context).count(body)

    async def create(request: Request) -> HTTPResponse | None:
        return await handler.generate(request, builder)

    async def count(request: Request) -> HTTPResponse:
        return await handler.compute(request, count_tokens)

    async def retrieve(request: Request, response_id: str) -> HTTPResponse:
        body = store.get(response_id).body
        for name in ("stream", "starting_after"):
            if _given(request, name).lower() not in _FALSE:
                raise unsupported(name, "a finished stream is not played again")
        _refuse_include(request)
        return HTTPResponse(body, content_type="application/json")

    async def delete(_: Request, response_id: str) -> HTTPResponse:
        store.delete(response_id)
        return json_response({"id": response_id, "object": "response.deleted", "deleted": True})

    async def list_input(request: Request, response_id: str) -> HTTPResponse:
        items = parse_json(store.get(response_id).step.input_items)
        _refuse_include(request)
        return json_response(page_of(items, request))

    async def cancel(_: Request, response_id: str) -> HTTPResponse:
        store.get(response_id)
        raise UnsupportedFeatureError(
            "responses cannot be cancelled: background execution is not supported; close the connection",
            field="background",
            code="background_not_supported",
        )

    async def compact(_: Request) -> HTTPResponse:
        raise UnsupportedFeatureError("histories are never compacted here", code="compaction_not_supported")

    app.add_route(create, ROOT, methods=["POST"], stream=True)
    app.add_route(count, f"{ROOT}/input_tokens", methods=["POST"], stream=True)
    app.add_route(compact, f"{ROOT}/compact", methods=["POST"])
    app.add_route(retrieve, f"{ROOT}/<response_id:str>", methods=["GET"])
    app.add_route(delete, f"{ROOT}/<response_id:str>", methods=["DELETE"])
    app.add_route(list_input, f"{ROOT}/<response_id:str>/input_items", methods=["GET"])
    app.add_route(cancel, f"{ROOT}/<response_id:str>/cancel", methods=["POST"])


def page_of(items: list[dict[str, Any]], request: Request) -> dict[str, Any]:
    """One page of Items, latest first unless asked otherwise. Raises InvalidRequestError."""
    order = one_of(_given(request, "order") or "desc", ("asc", "desc"), "order")
    limit = _limit(_given(request, "limit"))
    if _given(request, "before"):
        raise unsupported("before", "pages go forward; use after")
    ordered = items if order == "asc" else items[::-1]
    after = _given(request, "after")
    start = 0
    if after:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise invalid("after", f"{after[:100]!r} is no Item of this response")
        start = ids.index(after) + 1
    page = ordered[start : start + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + limit < len(ordered),
    }


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    is_short = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_LIMIT))
    if not is_short or not 1 <= int(text) <= MAX_LIMIT:
        raise invalid("limit", f"must be an integer from 1 to {MAX_LIMIT}")
    return int(text)


def _refuse_include(request: Request) -> None:
    if any(_given(request, name) for name in ("include", "include[]")):
        raise unsupported("include", "a stored response is returned as it is")


def _given(request: Request, name: str) -> str:
    value = request.args.get(name)
    return value if isinstance(value, str) else ""
