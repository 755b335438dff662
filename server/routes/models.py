"""``GET /v1/models`` and ``GET /v1/models/{id}``: the one public model."""

from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from sanic import HTTPResponse, Request

from ninfer_jax.errors import ModelNotFoundError
from ninfer_jax.server.http import App, json_response
from ninfer_jax.server.options import ServeOptions
from ninfer_jax.server.resident import Resident
from ninfer_jax.types import ModelInfo


def add_routes(app: App, resident: Resident, options: ServeOptions, *, created: int) -> None:
    def entry() -> dict[str, Any]:
        info = resident.model().engine.info
        return model_entry(info, options.model_id or info.model_id, created)

    async def list_models(_: Request) -> HTTPResponse:
        only = entry()
        listing = {
            "object": "list",
            "data": [only],
            "first_id": only["id"],
            "last_id": only["id"],
            "has_more": False,
        }
        return json_response(listing)

    async def get_model(_: Request, model: str) -> HTTPResponse:
        only = entry()
        if unquote(model) != only["id"]:
            raise ModelNotFoundError(
                f"the model {model[:200]!r} does not exist; this server has {only['id']!r}"
            )
        return json_response(only)

    app.add_route(list_models, "/v1/models", methods=["GET"])
    app.add_route(get_model, "/v1/models/<model:path>", methods=["GET"])


def model_entry(info: ModelInfo, model_id: str, created: int) -> dict[str, Any]:
    """OpenAI's members, llama.cpp's ``meta``, and what Anthropic clients read."""
    return {
        "id": model_id,
        "object": "model",
        "created": created,
        "owned_by": "ninfer-jax",
        "max_model_len": info.max_context,
        "meta": {
            "n_ctx": info.max_context,
            "n_vocab": info.vocab_size,
            "n_params": info.num_parameters,
            "architecture": info.architecture,
        },
        "type": "model",
        "display_name": model_id,
        "created_at": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
