"""A scripted engine: given text, cut into tokens, goes through the real output session and protocols."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, cycle
from pathlib import Path

from ninfer_jax.text.frontend import Frontend
from ninfer_jax.types import GenerationRequest, SamplingParams
from tests.server.fake_engine import INFO, FakeEngine, Script
from tests.server.harness import LiveServer
from tests.text.fakes import frontend

TEMPLATES = Path(__file__).parent.parent / "text" / "data"


@cache
def hybrid(name: str = "hybrid_effort", *, max_context: int = 4096) -> Frontend:
    """The real text front over a byte tokenizer and a template of the Qwen3.5 family."""
    return frontend((TEMPLATES / f"{name}.jinja").read_text(), max_context=max_context)


def plays(*texts: str, end: bool = True) -> Script:
    """Answer request after request with these texts; the last one again and again. Without ``end`` a
    text repeats for ever."""
    front = hybrid()
    answers = [[*front.tokenizer.encode(text), *([258] if end else [])] for text in texts]
    turn = count()

    def script(request: GenerationRequest) -> Iterator[int]:
        tokens = answers[min(next(turn), len(answers) - 1)]
        return iter(tokens) if end else cycle(tokens)

    return script


def engine_for(*texts: str, end: bool = True, max_context: int = 4096, **options: object) -> FakeEngine:
    info = replace(INFO, max_context=max_context)
    return FakeEngine(plays(*texts, end=end), info=info, **{"max_concurrency": 4, **options})  # type: ignore[arg-type]


def what_ran(server: LiveServer) -> tuple[tuple[int, ...], SamplingParams, int]:
    """Prompt, sampler without its seed, and limit of the latest request: all that its body decides there."""
    engine = server.resident.model().engine
    assert isinstance(engine, FakeEngine)
    request = engine.requests[-1]
    return tuple(request.prompt.token_ids), replace(request.sampling, seed=0), request.max_output_tokens


def prompt_text(engine: FakeEngine, index: int = -1) -> str:
    """What the template made of a request, as text."""
    ids: Sequence[int] = engine.requests[index].prompt.token_ids
    front = hybrid()
    return b"".join(front.tokenizer.token_bytes(token) for token in ids).decode()
