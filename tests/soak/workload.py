"""What the soak's clients ask, and what became of it: greedy chats whose lone answers are known."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

CHAT = "/v1/chat/completions"
WORDS = ("river", "stone", "green", "seven", "light", "paper", "cloud", "north", "apple", "table")
MAX_TURNS = 4
MAX_WORDS_A_TURN = 14
MAX_TOKENS = 240
PATIENCE_SECONDS = 600.0
REFUSALS = {(429, "server_overloaded"), (503, "request_queue_timeout")}
"""What a server may answer that has more clients than it takes."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request, always greedy."""

    messages: tuple[tuple[str, str], ...]
    max_tokens: int
    stop: str | None = None

    def body(self, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": [{"role": role, "content": content} for role, content in self.messages],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        if self.stop is not None:
            body["stop"] = [self.stop]
        return body


@dataclass(frozen=True, slots=True)
class Answer:
    """All of an answer that must not depend on who else is served."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int


def random_case(rng: random.Random) -> Case:
    """A chat of one to ``MAX_TURNS`` turns. Openings repeat, so that prefixes are shared."""

    def words() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, MAX_WORDS_A_TURN)))

    opening = ("user", " ".join(rng.choices(WORDS[:2], k=8)))
    turns = [(("assistant", "user")[i % 2], words()) for i in range(rng.randrange(0, MAX_TURNS, 2))]
    limit = rng.choice((0, 1, 2, 20, 60, MAX_TOKENS))
    return Case((opening, *turns) if turns else (("user", words()),), limit)


async def lone_answers(client: httpx.AsyncClient, count: int, seed: int) -> dict[Case, Answer]:
    """``count`` cases with their answers from a server that serves nobody else. Every other long answer
    gives a second case: a stop string out of its middle."""
    rng = random.Random(seed)
    answers: dict[Case, Answer] = {}
    while len(answers) < count:
        case = random_case(rng)
        answers[case] = answer = await _aggregate(client, case)
        at = len(answer.text) // 2
        stop = answer.text[at : at + 2]
        if len(answer.text) > 20 and "\ufffd" not in stop and rng.random() < 0.5:
            stopped = replace(case, stop=stop)
            answers[stopped] = await _aggregate(client, stopped)
    return answers


class Clients:
    """Clients that go on asking for the cases at random, wait, cut off and give up. ``counts`` has the
    outcomes; ``wrong`` describes every answer that is neither the lone one nor an allowed refusal."""

    def __init__(self, url: str, answers: dict[Case, Answer], seed: int) -> None:
        self._url = url
        self._answers = answers
        self._cases = list(answers)
        self._rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    @property
    def num_checked(self) -> int:
        """Answers compared with the lone ones."""
        return self.counts["equal"] + len(self.wrong)

    async def run(self, num_clients: int, is_over: Callable[[], bool]) -> None:
        await asyncio.gather(*(self._one(is_over) for _ in range(num_clients)))

    async def _one(self, is_over: Callable[[], bool]) -> None:
        async with new_client(self._url) as client:
            while not is_over():
                case = self._rng.choice(self._cases)
                try:
                    await self._ask(client, case)
                except _Refused as refused:
                    self.counts[refused.code] += 1
                except Exception as error:
                    self.wrong.append(f"{case}: {error!r}")
                await asyncio.sleep(self._rng.choice((0, 0, 0.01, 0.05)))

    async def _ask(self, client: httpx.AsyncClient, case: Case) -> None:
        kind = self._rng.random()
        if kind < 0.25:
            await _cut(client, case, self._rng.randint(1, 30))
            self.counts["cut"] += 1
        elif kind < 0.35:
            try:
                async with asyncio.timeout(self._rng.uniform(0.0, 0.1)):
                    self._check(case, await _aggregate(client, case))
            except TimeoutError:
                self.counts["given up"] += 1
        elif kind < 0.75:
            self._check(case, await _stream(client, case))
        else:
            self._check(case, await _aggregate(client, case))

    def _check(self, case: Case, answer: Answer) -> None:
        if answer == self._answers[case]:
            self.counts["equal"] += 1
            self.counts["stopped by a string"] += case.stop is not None and answer.finish_reason == "stop"
        else:
            self.wrong.append(f"{case}: {answer}, alone {self._answers[case]}")


def new_client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False)


class _Refused(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


async def _aggregate(client: httpx.AsyncClient, case: Case) -> Answer:
    response = await client.post(CHAT, json=case.body(stream=False))
    body = response.json()
    _check_status(response.status_code, body)
    (choice,) = body["choices"]
    return _answer(choice["message"]["content"] or "", choice["finish_reason"], body["usage"])


async def _stream(client: httpx.AsyncClient, case: Case) -> Answer:
    text, reason, usage, is_done = "", None, None, False
    async with client.stream("POST", CHAT, json=case.body(stream=True)) as response:
        if response.status_code != 200:
            _check_status(response.status_code, json.loads(await response.aread()))
        async for line in response.aiter_lines():
            is_done = line == "data: [DONE]" or is_done
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                _check_status(503, chunk)
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                reason = choice["finish_reason"] or reason
            usage = chunk.get("usage") or usage
    if not is_done or reason is None or usage is None:
        raise ValueError(f"a stream without its end: {reason} {usage} {is_done}")
    return _answer(text, reason, usage)


async def _cut(client: httpx.AsyncClient, case: Case, num_lines: int) -> None:
    """Leave a stream after ``num_lines`` lines."""
    async with client.stream("POST", CHAT, json=case.body(stream=True)) as response:
        if response.status_code != 200:
            _check_status(response.status_code, json.loads(await response.aread()))
        lines = response.aiter_lines()
        for _ in range(num_lines):
            if await anext(lines, None) is None:
                break


def _check_status(status: int, body: dict[str, Any]) -> None:
    if status != 200:
        code = body["error"]["code"]
        if (status, code) not in REFUSALS:
            raise ValueError(f"{status} {body}")
        raise _Refused(code)


def _answer(text: str, reason: str, usage: dict[str, Any]) -> Answer:
    return Answer(text, reason, usage["prompt_tokens"], usage["completion_tokens"])
