"""Chat templates as Hugging Face checkpoints expect to be rendered: jinja2, sandboxed, bounded.

Environment and globals follow ``transformers.utils.chat_template_utils``: trimmed blocks, loop
controls, the ``generation`` tag, ``tojson`` without ASCII escapes, ``raise_exception``, ``strftime_now``.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ninfer_jax.errors import CorruptModelError, InvalidPromptError
from ninfer_jax.json_values import dump_json

MAX_RENDERED_CHARS = 64 << 20
"""A rendering past this is refused: it is 10 times any context, so the template has gone wild."""


class ChatTemplate:
    """One compiled template. ``render`` is safe to call from several threads."""

    def __init__(self, source: str, *, now: Callable[[], datetime] = datetime.now) -> None:
        self.source = source
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
        try:
            self._template = environment.from_string(source)
            self._variables = frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        except (jinja2.TemplateError, RecursionError) as error:
            raise CorruptModelError(
                f"the chat template does not compile: {error}", field="chat_template"
            ) from error

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template reads from its caller."""
        return self._variables

    def render(self, variables: Mapping[str, Any]) -> str:
        """Raises InvalidPromptError with the template's own words where it refuses the conversation."""
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(variables):
                size += len(piece)
                if size > MAX_RENDERED_CHARS:
                    raise InvalidPromptError(
                        f"the chat template rendered more than {MAX_RENDERED_CHARS} characters"
                    )
                pieces.append(piece)
        except InvalidPromptError:
            raise
        except RecursionError as error:
            raise InvalidPromptError("the conversation is nested too deeply for the chat template") from error
        except Exception as error:  # whatever a template does to its input is the input's fault
            raise InvalidPromptError(f"the chat template refused the conversation: {error}") from error
        return "".join(pieces)


class _GenerationTag(Extension):
    """``{% generation %}`` marks the assistant's words for training masks; here it only passes through."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as an instance-writable set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if ensure_ascii or sort_keys:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
    return dump_json(value, indent=indent, separators=separators)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
