"""Any OpenAI-compatible server as a target, through streamed chat completions.

Prompts are text, since token ids are not in the protocol: random common words, of which a probe at the
start finds how many make a prompt of the wanted length. The true length comes back in ``usage``.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from ninfer_jax.cli.bench_target import Job, Trace, peak_memory_of
from ninfer_jax.errors import NinferError

WORDS = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house
service friend father power hour game line end member law car city community name president team minute idea
body information back parent face others level office door health person art war history party result change
morning reason research girl guy moment air teacher force education
""".split()  # noqa: SIM905  # ninety quoted words would be no easier to read
REQUEST = " Ignore the words above and tell me a long story."
TIMEOUT = httpx.Timeout(600.0, connect=10.0)


class HttpTarget:
    """A server at ``url`` (with or without ``/v1``). ``process_id`` is its process, where it is ours
    to look at, for its memory."""

    def __init__(
        self,
        name: str,
        url: str,
        *,
        api_key: str | None = None,
        model: str | None = None,
        process_id: int | None = None,
    ) -> None:
        self.name = name
        self._url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._process_id = process_id
        self._model = model or self._first_model()
        self._overhead, self._per_word = self._calibrate()

    def run(self, jobs: Sequence[Job]) -> list[Trace]:
        return asyncio.run(self._run(jobs))

    def peak_memory(self) -> int | None:
        return peak_memory_of(self._process_id) if self._process_id else None

    def close(self) -> None:
        pass  # each run closes its own connections

    async def _run(self, jobs: Sequence[Job]) -> list[Trace]:
        prompts = [self._prompt(job) for job in jobs]
        limits = httpx.Limits(max_connections=len(jobs))
        async with httpx.AsyncClient(headers=self._headers, timeout=TIMEOUT, limits=limits) as client:
            return await asyncio.gather(
                *(
                    self._stream(client, prompt, job.output_tokens)
                    for prompt, job in zip(prompts, jobs, strict=True)
                )
            )

    async def _stream(self, client: httpx.AsyncClient, prompt: str, output_tokens: int) -> Trace:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,  # llama.cpp and vLLM know it; where it is unknown it is ignored
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        started = time.monotonic()
        times: list[float] = []
        usage: dict[str, Any] | None = None
        async with client.stream("POST", f"{self._url}/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                raise NinferError(f"{self._url} answered {response.status_code}: {await _text(response)}")
            async for event in _events(response):
                if "error" in event:
                    raise NinferError(f"{self._url} failed in the stream: {event['error']}")
                for choice in event.get("choices") or ():
                    if _has_text(choice.get("delta", {})):
                        times.append(time.monotonic())
                    if choice.get("finish_reason") and not times:  # a token without text of its own
                        times.append(time.monotonic())
                usage = event.get("usage") or usage
        if usage is None or not times:
            raise NinferError(f"{self._url} ended a stream early, or without the usage that was asked for")
        return Trace(
            usage["prompt_tokens"], started, tuple(times), _spread(usage["completion_tokens"], len(times))
        )

    def _prompt(self, job: Job) -> str:
        words = max(1, round((job.prompt_tokens - self._overhead) / self._per_word))
        shared = round(job.shared_tokens / self._per_word)
        return self._words(job.shared_seed, shared) + self._words(job.seed, words - shared) + REQUEST

    @staticmethod
    def _words(seed: int, count: int) -> str:
        return "".join(f" {word}" for word in random.Random(seed).choices(WORDS, k=max(count, 0)))

    def _first_model(self) -> str:
        response = self._get("/v1/models")
        models = response.json().get("data") or []
        if not models:
            raise NinferError(f"{self._url} lists no models; name one with --model-id")
        model: str = models[0]["id"]
        return model

    def _get(self, path: str) -> httpx.Response:
        try:
            return httpx.get(self._url + path, headers=self._headers, timeout=TIMEOUT).raise_for_status()
        except httpx.HTTPError as error:
            raise NinferError(f"{self._url}{path}: {error}") from None

    def _calibrate(self) -> tuple[float, float]:
        """(prompt tokens beside the words, tokens a word), from the usage of two short requests."""
        short, long = 8, 108

        def measure(count: int) -> int:
            prompt = self._words(0, count) + REQUEST

            async def probe() -> Trace:
                async with httpx.AsyncClient(headers=self._headers, timeout=TIMEOUT) as client:
                    return await self._stream(client, prompt, 1)

            return asyncio.run(probe()).prompt_tokens

        few, many = measure(short), measure(long)
        per_word = (many - few) / (long - short)
        return few - short * per_word, per_word


async def _text(response: httpx.Response) -> str:
    return (await response.aread()).decode(errors="replace")[:500]


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data:") and (data := line[5:].strip()) != "[DONE]":
            yield json.loads(data)


def _has_text(delta: dict[str, Any]) -> bool:
    return bool(delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"))


def _spread(tokens: int, chunks: int) -> tuple[int, ...]:
    """Cumulative tokens at each chunk when only the sum is known: held-back text makes fewer chunks
    than tokens."""
    return tuple(round(tokens * (i + 1) / chunks) for i in range(chunks))
