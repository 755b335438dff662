"""The Python API: a model in this process, the same engine that the server runs.

    with InferenceEngine("SmolLM2-135M-Instruct.gguf") as engine:
        print(engine.generate([{"role": "user", "content": "Hello!"}], max_tokens=64))

A prompt is a string (a plain completion, no chat template) or a list of messages; a list of prompts
runs as one batch.
"""

import asyncio
import queue
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, Unpack, cast, overload

from ninfer_jax.artifact.loader import LoadedModel
from ninfer_jax.config import CacheLayout, EngineConfig, WeightFormat
from ninfer_jax.engine.build import build_engine, load_checked, prefix_policy
from ninfer_jax.engine.generate_options import Options, resolve
from ninfer_jax.engine.generate_result import GenerateResult, TokenCallback
from ninfer_jax.errors import InvalidRequestError
from ninfer_jax.models.base import ModelConfig
from ninfer_jax.text.frontend import Frontend, Prepared
from ninfer_jax.text.simple_messages import conversation_of
from ninfer_jax.types import Engine, GenerationRequest

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Prompt: TypeAlias = str | Messages
Batch: TypeAlias = list[str] | Sequence[Messages]
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One chat as an object. None takes the model's default."""

    messages: Messages
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stream: bool = False


def default_config(model: ModelConfig) -> EngineConfig:
    """The library's: four contiguous lanes, as much context as the model has up to 8,192, patience."""
    context = min(8192, model.max_position_embeddings)
    return EngineConfig(
        max_context=context,
        kv_capacity=4 * context,
        max_concurrency=4,
        max_pending_requests=1024,
        pending_timeout=float("inf"),
        cache_layout="contiguous",
    )


class InferenceEngine:
    """Loads (or takes) a model, compiles it, and generates until ``shutdown``. Safe in several threads."""

    def __init__(
        self,
        model: str | Path | LoadedModel,
        *,
        cache: CacheLayout | None = None,
        config: EngineConfig | None = None,
        weights: WeightFormat | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``cache`` overrides the layout of ``config``. ``weights`` is the format to load in (int8 on CPU).
        ``progress`` follows compilation. Raises ModelLoadError or ConfigError."""

        def settings(model: ModelConfig) -> EngineConfig:
            resolved = config or default_config(model)
            return resolved if cache is None else replace(resolved, cache_layout=cache)

        loaded = model if isinstance(model, LoadedModel) else load_checked(model, settings, weights=weights)
        self._config = settings(loaded.config)
        self._frontend = Frontend.from_resources(
            loaded.resources,
            max_context=self._config.max_context,
            find_frontiers=prefix_policy(loaded.config, self._config).reads_frontiers,
        )
        self._host = build_engine(loaded, self._config, progress=progress)
        self._capacity = self._config.max_concurrency + self._config.max_pending_requests

    @property
    def engine(self) -> Engine:
        """The token-level engine underneath."""
        return self._host

    @property
    def frontend(self) -> Frontend:
        """Tokenizer and chat template."""
        return self._frontend

    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> str: ...
    @overload
    def generate(
        self, prompt: Batch, *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> list[str]: ...
    @overload
    def generate(
        self, prompt: Prompt, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Generator[str, None, None]: ...
    @overload
    def generate(
        self, prompt: Batch, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Generator[tuple[int, str], None, None]: ...
    def generate(
        self, prompt: Prompt | Batch, *, stream: bool = False, **options: Unpack[Options]
    ) -> str | list[str] | Generator[str, None, None] | Generator[tuple[int, str], None, None]:
        """The answer to one prompt, or to each of several.

        With ``stream``: a generator of pieces of text, of ``(index, piece)`` for several prompts; closing
        it cancels what still runs. Raises RequestError for what was asked wrongly.
        """
        if is_one_prompt(prompt):
            one = cast(Prompt, prompt)
            return self._stream_one(one, options) if stream else self._run([one], options)[0]
        many = cast(Sequence[Prompt], prompt)
        return self._stream_many(many, options) if stream else self._run(many, options)

    def generate_with_request(self, request: GenerateRequest) -> str | Generator[str, None, None]:
        """The same for a request object."""
        options = Options(
            top_k=request.top_k,
            top_p=request.top_p,
            temperature=request.temperature,
            max_tokens=request.max_tokens,
        )
        if request.stream:
            return self.generate(request.messages, stream=True, **options)
        return self.generate(request.messages, **options)

    async def generate_async(self, prompt: Prompt, **options: Unpack[Options]) -> AsyncGenerator[str, None]:
        """Pieces of the answer to one prompt; closing the generator cancels it."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def put(piece: str | None) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        result = GenerateResult(put, on_end=lambda: put(None))
        await asyncio.to_thread(self._submit, prompt, options, result)
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            result.wait_completion()  # it is complete: raises what ended it
        finally:
            result.cancel()

    def submit(
        self,
        prompt: Prompt,
        *,
        cb: TokenCallback | None = None,
        reasoning_cb: TokenCallback | None = None,
        **options: Unpack[Options],
    ) -> GenerateResult:
        """Start one generation and return at once. Raises RequestError, or ServerOverloadedError when
        the engine is at its capacity."""
        return self._submit(prompt, options, GenerateResult(cb, reasoning_cb=reasoning_cb))

    def get_stats(self) -> dict[str, Any]:
        """Scheduler, cache and throughput counters, JSON-ready."""
        return dict(self._host.stats())

    def shutdown(self) -> None:
        """Fail what still runs and stop the engine thread. May be called more than once."""
        self._host.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _submit(self, prompt: Prompt, options: Options, result: GenerateResult) -> GenerateResult:
        prepared = self._prepare(prompt, options.get("enable_thinking"))
        defaults = self._frontend.sampling_defaults(thinking=prepared.thinking)
        resolved = resolve(options, defaults, self._config.top_k_cap)
        request = GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt=prepared.prompt,
            sampling=resolved.sampling,
            max_output_tokens=resolved.max_tokens,
            session=self._frontend.session(prepared, stop=resolved.stop),
        )
        reservation = self._host.reserve()
        result.attach(reservation)
        try:
            reservation.submit(request, result.put)
        except BaseException:
            reservation.release()
            raise
        return result

    def _prepare(self, prompt: Prompt, enable_thinking: bool | None) -> Prepared:
        if isinstance(prompt, str):
            return self._frontend.prepare_text(prompt)
        return self._frontend.prepare(conversation_of(prompt, enable_thinking=enable_thinking))

    def _run(self, prompts: Sequence[Prompt], options: Options) -> list[str]:
        """All answers, with at most the engine's capacity submitted at a time."""
        results: list[GenerateResult] = []
        try:
            for index, prompt in enumerate(prompts):
                if index >= self._capacity:
                    results[index - self._capacity].wait_completion()
                results.append(self._submit(prompt, options, GenerateResult()))
            return [result.wait_completion() for result in results]
        finally:
            for result in results:
                result.cancel()

    def _stream_one(self, prompt: Prompt, options: Options) -> Generator[str, None, None]:
        for _, piece in self._stream_many([prompt], options):
            yield piece

    def _stream_many(
        self, prompts: Sequence[Prompt], options: Options
    ) -> Generator[tuple[int, str], None, None]:
        """Pieces of all answers as they come. The queue holds no more than the answers themselves."""
        news: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
        results: list[GenerateResult] = []

        def submit_next() -> None:
            index = len(results)
            result = GenerateResult(
                lambda piece: news.put((index, piece)), on_end=lambda: news.put((index, None))
            )
            results.append(self._submit(prompts[index], options, result))

        try:
            while len(results) < min(len(prompts), self._capacity):
                submit_next()
            num_ended = 0
            while num_ended < len(prompts):
                index, piece = news.get()
                if piece is not None:
                    yield index, piece
                    continue
                num_ended += 1
                results[index].wait_completion()  # it is complete: raises what ended it
                if len(results) < len(prompts):
                    submit_next()
        finally:
            for result in results:
                result.cancel()


def is_one_prompt(prompt: Prompt | Batch) -> bool:
    """A string or a list of messages, as opposed to a list of those."""
    if isinstance(prompt, str):
        return True
    if isinstance(prompt, Mapping) or not isinstance(prompt, Sequence):
        raise InvalidRequestError("a prompt is a string or a list of messages", field="prompt")
    return bool(prompt) and isinstance(prompt[0], Mapping)
