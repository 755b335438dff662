"""A byte-level tokenizer and small templates, so that text tests need no model."""

import json
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ninfer_jax.text.conversation import Conversation, TextPart, Tool, Turn
from ninfer_jax.text.detokenizer import decode_step
from ninfer_jax.text.frontend import Frontend
from ninfer_jax.text.piece_bytes import byte_alphabet

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

CHATML = (
    "{%- for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML + "{%- if add_generation_prompt %}{{ '<think>\n\n</think>\n\n' if enable_thinking is false else '<think>\n' }}{% endif %}"  # fmt: skip  # noqa: E501


def byte_tokenizer_json() -> bytes:
    """One token a byte, then the special and marker tokens: 256 <|endoftext|>, 257 <|im_start|>, ..."""
    tokenizer = Tokenizer(models.BPE(dict(byte_alphabet()), []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKERS])
    return tokenizer.to_str().encode()


def resources(template: str = CHATML) -> dict[str, bytes]:
    return {
        "tokenizer.json": byte_tokenizer_json(),
        "tokenizer_config.json": json.dumps({"eos_token": "<|im_end|>", "bos_token": None}).encode(),
        "chat_template.jinja": template.encode(),
        "generation_config.json": json.dumps(
            {"eos_token_id": [258, 256], "temperature": 0.7, "top_k": 20}
        ).encode(),
    }


def frontend(template: str = CHATML, *, max_context: int = 100_000) -> Frontend:
    return Frontend.from_resources(resources(template), max_context=max_context)


def turn(role: str, text: str, **more: object) -> Turn:
    return Turn(role, (TextPart(text),), **more)  # type: ignore[arg-type]


def tool(name: str, properties: dict[str, object] | None = None) -> Tool:
    schema = {"type": "object", "properties": properties or {}}
    return Tool(name, {"type": "function", "function": {"name": name, "parameters": schema}})


def conversation(*turns: Turn, tools: tuple[Tool, ...] = (), **switches: object) -> Conversation:
    names = frozenset(t.name for t in tools)
    return Conversation(turns, tools=tools, callable_tools=names, **switches)  # type: ignore[arg-type]


def decode_pieces(pieces: Iterable[bytes]) -> list[str]:
    """The text that becomes certain with each piece, and what the end makes of the rest."""
    texts, pending = [], b""
    for piece in pieces:
        text, pending = decode_step(pending + piece)
        texts.append(text)
    return [*texts, decode_step(pending, final=True)[0]]
