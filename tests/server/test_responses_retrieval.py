"""Stored Responses and their input Items, as the GET routes show them."""

import pytest

from tests.server.responses import RESPONSES, create, message, user
from tests.server.scripted import engine_for, hybrid


def test_input_items_are_normalised_and_keep_their_ids(start):
    server = start(engine_for("x"), hybrid())
    made = create(server, input=[user("one", id="msg_one"), message("assistant", "two"), user("three")])
    page = server.http.get(f"{RESPONSES}/{made['id']}/input_items", params={"order": "asc"}).json()
    first, second, third = page["data"]
    assert (first["id"], first["content"]) == ("msg_one", [{"type": "input_text", "text": "one"}])
    assert second["content"] == [{"type": "output_text", "text": "two"}]
    assert len({first["id"], second["id"], third["id"]}) == 3
    assert (page["first_id"], page["last_id"], page["has_more"]) == (first["id"], third["id"], False)


def test_input_items_are_those_of_this_request_only(start):
    server = start(engine_for("</think>\n\nOne."), hybrid())
    first = create(server, input="q1")
    second = create(server, input="q2", previous_response_id=first["id"])
    page = server.http.get(f"{RESPONSES}/{second['id']}/input_items").json()
    assert [item["content"][0]["text"] for item in page["data"]] == ["q2"]


def test_input_items_pages(start):
    server = start(engine_for("x"), hybrid())
    names = [f"m{number}" for number in range(5)]
    made = create(server, input=[user(name, id=name) for name in names])
    path = f"{RESPONSES}/{made['id']}/input_items"

    def page(**params):
        found = server.http.get(path, params=params).json()
        return [item["id"] for item in found["data"]], found["has_more"]

    assert page() == (names[::-1], False)
    assert page(order="asc", limit=2) == (names[:2], True)
    assert page(order="asc", limit=3, after="m1") == (names[2:], False)
    assert page(order="desc", limit=2, after="m3") == (["m2", "m1"], True)
    assert page(order="asc", after="m4") == ([], False)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"limit": "000000001999"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"order": "sideways"}, "order"),
        ({"after": "nobody"}, "after"),
        ({"before": "m1"}, "before"),
        ({"include": "x"}, "include"),
        ({"include[]": "x"}, "include"),
    ],
)
def test_wrong_pages_name_their_parameter(start, params, field):
    server = start(engine_for("x"), hybrid())
    made = create(server, max_output_tokens=1)
    answer = server.http.get(f"{RESPONSES}/{made['id']}/input_items", params=params)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"stream": "true"}, 400),
        ({"starting_after": "3"}, 400),
        ({"include[]": "reasoning.encrypted_content"}, 400),
        ({"stream": "false"}, 200),
        ({"include_obfuscation": "false"}, 200),
    ],
)
def test_retrieval_options_are_refused_rather_than_ignored(start, params, status):
    server = start(engine_for("x"), hybrid())
    made = create(server, max_output_tokens=1)
    assert server.http.get(f"{RESPONSES}/{made['id']}", params=params).status_code == status
