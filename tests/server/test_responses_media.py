"""Images and files in Items, with a model that sees and with one that does not."""

from dataclasses import replace

import pytest

from tests.server.fake_engine import INFO, FakeEngine
from tests.server.fake_frontend import ByteFrontend
from tests.server.harness import LiveServer
from tests.server.responses import MARK, PNG, call, create, message, refused, result, user


@pytest.mark.parametrize("kind", ["input_image", "input_video"])
def test_media_without_vision_is_refused(server, kind):
    part = {"type": kind, f"{kind.removeprefix('input_')}_url": PNG}
    assert refused(server, input=[user([part])])["code"] == "vision_disabled"
    if kind == "input_image":
        error = refused(server, input=[user(), call(), result(output=[part])])
        assert (error["code"], error["param"]) == ("vision_disabled", "input[2].output[0]")


@pytest.fixture(scope="module")
def seeing():
    """Form only: the text front of these tests renders no media."""
    engine = FakeEngine(info=replace(INFO, has_vision=True))
    with LiveServer(engine, ByteFrontend()) as live:
        yield live
    engine.close()


@pytest.mark.parametrize(
    "items",
    [
        [user([{"type": "input_image", "image_url": PNG, "detail": "auto", **MARK}])],
        [user([{"type": "input_video", "video_url": "https://example.com/v.mp4"}])],
        [user(), message("assistant", [{"type": "input_image", "image_url": PNG}]), user()],
        [user(), call(), result(output=[{"type": "input_image", "image_url": PNG}])],
    ],
    ids=str,
)
def test_media_parts_where_vision_exists(seeing, items):
    assert create(seeing, input=items, max_output_tokens=1)


@pytest.mark.parametrize(
    ("part", "code", "field"),
    [
        ({"type": "input_image", "file_id": "f"}, "unsupported_feature", "file_id"),
        ({"type": "input_image", "image_url": PNG, "detail": "high"}, "unsupported_feature", "detail"),
        ({"type": "input_image"}, "invalid_value", "image_url"),
        ({"type": "input_image", "image_url": {"url": PNG}}, "invalid_value", "image_url"),
        ({"type": "input_video"}, "invalid_value", "video_url"),
    ],
    ids=str,
)
def test_wrong_media_parts_are_named(seeing, part, code, field):
    error = refused(seeing, input=[user([part])])
    assert (error["code"], error["param"]) == (code, f"input[0].content[0].{field}")
