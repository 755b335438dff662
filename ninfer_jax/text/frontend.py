"""A model's text front: conversations to prompts, and decoders for what comes back.

frontend = Frontend.from_resources(source.resources, max_context=8192)
prepared = frontend.prepare(conversation)
session = frontend.session(prepared, stop=("END",))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ninfer_jax.errors import (
    ContextLengthExceededError,
    CorruptModelError,
    InvalidPromptError,
    InvalidRequestError,
    UnsupportedFeatureError,
)
from ninfer_jax.text.capabilities import TemplateCapabilities, detect_capabilities
from ninfer_jax.text.conversation import Conversation, MediaPart, Tool
from ninfer_jax.text.frontiers import FrontierFinder
from ninfer_jax.text.generation import (
    TOKENIZER_CONFIG,
    GenerationDefaults,
    generation_defaults,
    load_json_resource,
    named_tokens,
)
from ninfer_jax.text.output_parser import ToolParsing
from ninfer_jax.text.reasoning import OPEN
from ninfer_jax.text.rendering import ConversationRenderer
from ninfer_jax.text.segments import SegmentEncoder
from ninfer_jax.text.session import SessionOptions, TextOutputSession, ThinkingBudget
from ninfer_jax.text.template import ChatTemplate
from ninfer_jax.text.tokenizer import Tokenizer, load_tokenizer
from ninfer_jax.types import CacheFrontier, PreparedPrompt, SamplingParams

CHAT_TEMPLATE = "chat_template.jinja"

THINKING_CLOSE = (
    "\n\n Considering the limited time by the user, I have to give the solution based on the thinking"
    " directly now.\n</think>\n\n"
)
"""What is forced when a thinking budget runs out; Qwen's published wording, byte for byte."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt ready for the engine, and what its decoder has to know."""

    prompt: PreparedPrompt
    text: str
    reasoning: bool | None
    """None: the model does not think. True: the prompt ends inside ``<think>``."""
    thinking: bool
    """Thinking is on for the new turn."""
    effort: str | None = None
    """``none`` without thinking; else the template's effort in force, None where it has no tiers."""
    continues_text: bool = False
    tools: tuple[Tool, ...] = ()
    """Those that may become structured calls."""


class Frontend:
    """Tokenizer, chat template and generation defaults of one model. Safe in several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        special_tokens: Mapping[str, str],
        defaults: GenerationDefaults,
        max_context: int,
        capabilities: TemplateCapabilities | None = None,
        find_frontiers: bool = True,
    ) -> None:
        """``find_frontiers`` looks for the places in a prompt where a checkpoint is worth having."""
        self.tokenizer = tokenizer
        self.template = template
        self.defaults = defaults
        self.max_context = max_context
        self._find_frontiers = find_frontiers
        self.capabilities = capabilities or (detect_capabilities(template) if template else None)
        self._renderer = (
            ConversationRenderer(template, self.capabilities, special_tokens)
            if template and self.capabilities
            else None
        )
        self._encoder = SegmentEncoder(
            tokenizer, tokenizer.boundary_tokens(template.source if template else "")
        )

    @classmethod
    def from_resources(
        cls,
        resources: Mapping[str, bytes],
        *,
        max_context: int,
        model_id: str | None = None,
        find_frontiers: bool = True,
    ) -> "Frontend":
        """From a checkpoint's frontend files. Raises CorruptModelError, UnsupportedModelError.

        ``model_id`` is the artifact's own identity; registered ones have sampling presets.

        Reads ``tokenizer.json`` | ``gguf_tokenizer.json`` | ``tokenizer.model``, ``chat_template.jinja``,
        ``tokenizer_config.json``, ``generation_config.json`` and ``config.json``; only a tokenizer is a must.
        """
        tokenizer = load_tokenizer(resources)
        tokens = named_tokens(resources, tokenizer)
        source = _template_source(resources)
        template = ChatTemplate(source) if source is not None else None
        capabilities = detect_capabilities(template) if template else None
        turn_end = capabilities.turn_end if capabilities else None
        return cls(
            tokenizer,
            template,
            special_tokens=tokens,
            defaults=generation_defaults(resources, tokenizer, tokens, turn_end=turn_end, model_id=model_id),
            max_context=max_context,
            capabilities=capabilities,
            find_frontiers=find_frontiers,
        )

    @cached_property
    def thinking_close_ids(self) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(THINKING_CLOSE))

    def sampling_defaults(self, *, thinking: bool) -> SamplingParams:
        return self.defaults.thinking if thinking else self.defaults.plain

    def prepare(self, conversation: Conversation) -> Prepared:
        """Render, tokenise and check. Raises the RequestError that says what is wrong with it."""
        if self._renderer is None or self.capabilities is None:
            raise InvalidPromptError("the model has no chat template")
        _check(conversation, self.capabilities)
        text = self._renderer.render(conversation)
        self._check_length(self.tokenizer.least_tokens(text), "at least ")
        encoded = self._encoder.encode(text)
        self._check_length(len(encoded.token_ids))
        frontiers: tuple[CacheFrontier, ...] = ()
        if self._find_frontiers:
            keeps_reasoning = self._keeps_reasoning(conversation)
            finder = FrontierFinder(self._renderer, conversation, text, keeps_reasoning=keeps_reasoning)
            frontiers = finder.find(self._encoder, encoded)
        opened = text.rstrip().endswith(OPEN) and not conversation.continue_final_turn
        may_think = self.capabilities.thinking and not conversation.continue_final_turn
        thinking = may_think and (opened or conversation.enable_thinking is not False)
        effort = conversation.reasoning_effort or self.capabilities.default_effort
        return Prepared(
            PreparedPrompt(encoded.token_ids, frontiers=frontiers),
            text,
            reasoning=opened if self.capabilities.thinking else None,
            thinking=thinking,
            effort=effort if thinking else "none",
            continues_text=conversation.continue_final_turn,
            tools=tuple(tool for tool in conversation.tools if tool.name in conversation.callable_tools),
        )

    def prepare_text(self, text: str) -> Prepared:
        """A plain completion prompt, no template; with what the tokenizer puts around plain text."""
        self._check_length(self.tokenizer.least_tokens(text), "at least ")
        ids = tuple(self.tokenizer.encode(text, add_special=True))
        if not ids:
            raise InvalidPromptError("the prompt is empty")
        self._check_length(len(ids))
        return Prepared(PreparedPrompt(ids), text, reasoning=None, thinking=False, continues_text=True)

    def session(
        self,
        prepared: Prepared,
        *,
        stop: Sequence[str] = (),
        tolerant: bool = False,
        thinking_budget: int | None = None,
        max_output_tokens: int | None = None,
        max_name: int = 64,
        ignore_eos: bool = False,
    ) -> TextOutputSession:
        """A decoder for one answer to ``prepared``.

        ``thinking_budget`` counts the model's own reasoning tokens and has no effect when thinking is off.
        With ``max_output_tokens`` it is checked that the forced close fits: InvalidRequestError, code
        ``thinking_budget_capacity_insufficient``.
        """
        budget: ThinkingBudget | None = None
        if thinking_budget is not None and prepared.thinking:
            budget = ThinkingBudget(thinking_budget, self.thinking_close_ids)
            if max_output_tokens is not None:
                self._check_budget(budget, max_output_tokens, len(prepared.prompt.token_ids))
        dialect = self.capabilities.tool_dialect if self.capabilities else "qwen_xml"
        options = SessionOptions(
            eos_ids=self.defaults.eos_ids,
            hidden_ids=self.tokenizer.special_ids,
            stop=tuple(stop),
            reasoning=prepared.reasoning,
            continues_text=prepared.continues_text,
            budget=budget,
            parsing=ToolParsing(prepared.tools, dialect, tolerant, max_name),
            ignore_eos=ignore_eos,
        )
        return TextOutputSession(options, self.tokenizer.token_bytes)

    def _keeps_reasoning(self, conversation: Conversation) -> bool:
        """Whether a later prompt will show this turn's reasoning, or the model has none."""
        assert self.capabilities is not None
        if not self.capabilities.thinking:
            return True
        asked = conversation.preserve_thinking if self.capabilities.preserve_switch else None
        return self.capabilities.preserve_default if asked is None else asked

    def _check_length(self, count: int, qualifier: str = "") -> None:
        if count > self.max_context:
            raise ContextLengthExceededError(
                f"the prompt has {qualifier}{count} tokens, the context holds {self.max_context}"
            )

    def _check_budget(self, budget: ThinkingBudget, max_output_tokens: int, prompt_tokens: int) -> None:
        capacity = min(max_output_tokens, self.max_context - prompt_tokens + 1)
        needed = budget.tokens + len(budget.close_ids) + 1
        if budget.tokens < capacity < needed:
            raise InvalidRequestError(
                f"a thinking budget of {budget.tokens} tokens needs an output capacity of {needed} tokens"
                f" to close and answer; there are {capacity}",
                code="thinking_budget_capacity_insufficient",
            )


def _check(conversation: Conversation, capabilities: TemplateCapabilities) -> None:
    if not conversation.turns:
        raise InvalidPromptError("the conversation is empty", field="messages")
    effort = conversation.reasoning_effort
    if effort is not None and effort not in capabilities.efforts:
        known = ", ".join(capabilities.efforts) or "none"
        raise InvalidRequestError(
            f"the loaded chat template does not offer reasoning effort {effort!r} (it offers: {known})",
            field="reasoning_effort",
            code="reasoning_effort_not_supported",
        )
    if any(isinstance(part, MediaPart) for turn in conversation.turns for part in turn.parts):
        raise UnsupportedFeatureError(
            "images and videos are not enabled on this server", field="messages", code="vision_disabled"
        )


def _template_source(resources: Mapping[str, bytes]) -> str | None:
    """From its own file, or the older places; of several named templates the one called ``default``."""
    if CHAT_TEMPLATE in resources:
        try:
            return resources[CHAT_TEMPLATE].decode()
        except UnicodeDecodeError as error:
            raise CorruptModelError(f"{CHAT_TEMPLATE} is not UTF-8", field="chat_template") from error
    for name in ("chat_template.json", TOKENIZER_CONFIG):
        found = load_json_resource(resources, name).get("chat_template")
        if isinstance(found, list):
            named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
            found = named.get("default")
        if isinstance(found, str):
            return found
    return None
