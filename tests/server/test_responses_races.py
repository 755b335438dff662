"""Stored Responses under threads: retrieved, deleted, continued while they are made; left at each phase."""

import json
import random
import threading
import time
from contextlib import closing

import httpx
import pytest

from tests.server.fake_engine import FakeEngine, idle_within
from tests.server.responses import RESPONSES, WEATHER, body, call_text, create, text_of
from tests.server.scripted import engine_for, hybrid, plays, prompt_text

NUM_THREADS = 8


class Ledger:
    """What the threads know together: ids that a stream has named, and those whose deletion succeeded."""

    def __init__(self):
        self._lock = threading.Lock()
        self.named, self.deleted = [], set()
        self.finished = {}

    def name(self, response_id):
        with self._lock:
            self.named.append(response_id)

    def finish(self, response):
        with self._lock:
            self.finished[response["id"]] = response

    def pick(self, rng):
        with self._lock:
            return rng.choice(self.named[-12:]) if self.named else None

    def delete(self, response_id):
        with self._lock:
            assert response_id not in self.deleted, "deleted twice: it came back"
            self.deleted.add(response_id)


def together(work):
    """Run ``work(number)`` on every thread; raises what any of them raised."""
    errors = []
    barrier = threading.Barrier(NUM_THREADS)

    def run(number):
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(NUM_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def events(client, **members):
    """Events of a stream as they come; none where the request is refused."""
    with client.stream("POST", RESPONSES, json=body(stream=True, **members)) as answer:
        if answer.status_code != 200:
            error = json.loads(answer.read())["error"]
            assert (answer.status_code, error["code"]) == (400, "previous_response_not_found")
            return
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def test_retrieving_and_deleting_while_responses_and_their_descendants_are_made(start):
    engine = engine_for("</think>\n\nThe answer.", max_concurrency=8, round_seconds=0.001)
    server = start(engine, hybrid())
    ledger = Ledger()

    def make(client, rng):
        parent = ledger.pick(rng) if rng.random() < 0.7 else None
        members = {"previous_response_id": parent} if parent else {}
        for event in events(client, input="a question", **members):
            if event["type"] == "response.created":
                ledger.name(event["response"]["id"])
            elif event["type"] == "response.completed":
                ledger.finish(event["response"])

    def look(client, rng):
        response_id = ledger.pick(rng)
        if response_id is None:
            return
        was_deleted = response_id in ledger.deleted
        match rng.randrange(3):
            case 0:
                answer = client.get(f"{RESPONSES}/{response_id}")
                assert answer.status_code in ((404,) if was_deleted else (200, 404))
                if answer.status_code == 200:
                    assert answer.json()["status"] == "completed"
                    assert text_of(answer.json()) == "The answer."
            case 1:
                answer = client.get(f"{RESPONSES}/{response_id}/input_items")
                assert answer.status_code in ((404,) if was_deleted else (200, 404))
                if answer.status_code == 200:
                    assert [item["content"][0]["text"] for item in answer.json()["data"]] == ["a question"]
            case 2:
                answer = client.delete(f"{RESPONSES}/{response_id}")
                assert answer.status_code in ((404,) if was_deleted else (200, 404))
                if answer.status_code == 200:
                    ledger.delete(response_id)

    def work(number):
        rng = random.Random(number)
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            for _ in range(15):
                (make if number % 2 else look)(client, rng)
                look(client, rng)

    together(work)
    assert ledger.finished
    assert ledger.deleted <= set(ledger.finished)
    assert idle_within(engine, 10)
    for response_id, response in ledger.finished.items():
        answer = server.http.get(f"{RESPONSES}/{response_id}")
        if response_id in ledger.deleted:
            assert answer.status_code == 404
        else:
            assert answer.json() == response


def test_a_descendant_keeps_the_past_that_is_deleted_while_it_is_made(start):
    engine = engine_for("</think>\n\nSo.", max_concurrency=8, round_seconds=0.001)
    server = start(engine, hybrid())
    root = create(server, input="the root question")

    def work(number):
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            stream = events(client, input=f"child {number}", previous_response_id=root["id"])
            child = None
            for event in stream:
                if event["type"] == "response.created" and number == 0:
                    client.delete(f"{RESPONSES}/{root['id']}")
                child = event
            if child is None:  # the root was gone before this one was accepted
                return
            grand = body(input="grandchild", previous_response_id=child["response"]["id"])
            assert client.post(RESPONSES, json=grand).status_code == 200

    together(work)
    assert server.http.get(f"{RESPONSES}/{root['id']}").status_code == 404
    grandchildren = [
        prompt_text(engine, index)
        for index in range(len(engine.requests))
        if "grandchild" in prompt_text(engine, index)
    ]
    assert grandchildren
    assert all("the root question" in prompt for prompt in grandchildren)


CALL = call_text(city="Paris")
PHASES = [
    ("response.created", "</think>\n\nwords "),
    ("response.in_progress", "</think>\n\nwords "),
    ("response.reasoning_text.delta", "thinking "),
    ("response.output_text.delta", "</think>\n\nwords "),
    ("response.function_call_arguments.delta", f"</think>\n\n{CALL}\n"),
    ("response.function_call_arguments.done", f"</think>\n\n{CALL}\n{CALL}\n"),
]


@pytest.mark.parametrize(("phase", "text"), PHASES, ids=[phase for phase, _ in PHASES])
def test_a_stream_left_at_any_event_frees_its_place_and_is_not_stored(start, phase, text):
    """The script never ends, so nothing of it can have been stored."""
    engine = FakeEngine(plays(text, end=False), max_concurrency=1, round_seconds=0.001, prefill_chunk=32)
    server = start(engine, hybrid(), tolerant_tool_calls=True)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        made = None
        with closing(events(client, tools=[WEATHER], max_output_tokens=100_000)) as stream:
            for event in stream:
                made = made or event["response"]["id"]
                if event["type"] == phase:
                    url = f"{RESPONSES}/{made}"
                    http = server.http
                    looks = (http.get(url), http.get(f"{url}/input_items"), http.delete(url))
                    assert [answer.status_code for answer in looks] == [404, 404, 404], "it is not stored yet"
                    break
            else:
                pytest.fail(f"{phase} never came")
    assert idle_within(engine, 30)
    assert server.http.get(f"{RESPONSES}/{made}").status_code == 404


def test_a_waiting_request_that_is_left_never_runs(start):
    engine = FakeEngine(plays("</think>\n\nwords ", end=False), max_concurrency=1, round_seconds=0.001)
    server = start(engine, hybrid(), heartbeat=0.05)
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        running = events(client, max_output_tokens=100_000)
        next(running)
        with (
            httpx.Client(base_url=server.url, timeout=60, trust_env=False) as second,
            second.stream("POST", RESPONSES, json=body(stream=True, input="waiting")) as answer,
        ):
            assert next(answer.iter_lines()) == ": keep-alive", "it waits for a place"
        while engine.stats()["reservations"] > 1:
            time.sleep(0.005)
        running.close()
    assert idle_within(engine, 30)
    assert len(engine.prompts) == 1, "the one that waited was never admitted"
