import json

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from ninfer_jax.artifact.demo import demo_model
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.text.gguf_tokenizer import build_tokenizer
from ninfer_jax.text.piece_bytes import byte_alphabet
from ninfer_jax.text.tokenizer import HFTokenizer, SentencePieceTokenizer, load_tokenizer
from tests.text.fakes import byte_tokenizer_json, resources

BYTES = [char for char, _ in sorted(byte_alphabet().items(), key=lambda item: item[1])]


def gguf(**changes: object) -> dict[str, object]:
    """256 byte tokens, one merge, a control and a user-defined token."""
    tokens = [*BYTES, "ab", "<|bos|>", "<note>"]
    types = [1] * 257 + [3, 4]
    base = {"model": "gpt2", "pre": "smollm", "tokens": tokens, "token_type": types, "merges": ["a b"]}
    return base | changes


@given(st.text(max_size=40))
def test_round_trip(text: str) -> None:
    tokenizer = load_tokenizer(resources())
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids, skip_special=False) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_special_tokens_are_ids_and_hidden() -> None:
    tokenizer = load_tokenizer(resources())
    ids = tokenizer.encode("<|im_start|>a<think>b<|im_end|>")
    assert ids == [257, ord("a"), 259, ord("b"), 258]
    assert tokenizer.special_ids == {256, 257, 258}
    assert tokenizer.decode(ids) == "a<think>b"
    assert tokenizer.id_of("<|im_end|>") == 258
    assert tokenizer.id_of("no such token") is None


def test_ids_past_the_vocabulary_stand_for_nothing() -> None:
    tokenizer = load_tokenizer(resources())
    assert tokenizer.vocab_size == 263
    assert tokenizer.token_bytes(263) == tokenizer.token_bytes(-1) == b""


def test_lone_surrogates_do_not_break_encoding() -> None:
    assert load_tokenizer(resources()).decode(load_tokenizer(resources()).encode("a\ud800b")) == "a\ufffdb"


def test_gguf_splits_digits_and_keeps_markers_visible() -> None:
    tokenizer = HFTokenizer(build_tokenizer(gguf()))
    assert tokenizer.encode("ab<|bos|>12<note>") == [256, 257, ord("1"), ord("2"), 258]
    assert tokenizer.special_ids == {257}


def test_gguf_bos() -> None:
    tokenizer = HFTokenizer(build_tokenizer(gguf(add_bos_token=True, bos_token_id=257)))
    assert tokenizer.encode("ab", add_special=True) == [257, 256]
    assert tokenizer.encode("ab") == [256]


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"pre": "martian"}, UnsupportedModelError, "tokenizer.ggml.pre"),
        ({"model": "rwkv"}, UnsupportedModelError, "tokenizer.ggml.model"),
        ({"tokens": None}, CorruptModelError, "tokenizer.ggml.tokens"),
        ({"merges": ["ab"]}, CorruptModelError, "tokenizer.ggml.merges"),
        ({"merges": ["a missing"]}, CorruptModelError, "tokenizer.ggml.merges"),
        ({"token_type": [1]}, CorruptModelError, "tokenizer.ggml.token_type"),
    ],
)
def test_bad_gguf_metadata_is_refused_by_name(changes: dict[str, object], error: type, field: str) -> None:
    with pytest.raises(error) as caught:
        load_tokenizer({"gguf_tokenizer.json": json.dumps(gguf(**changes)).encode()})
    assert caught.value.field == field


def test_no_tokenizer() -> None:
    with pytest.raises(CorruptModelError, match="no tokenizer"):
        load_tokenizer({})
    with pytest.raises(CorruptModelError, match=r"tokenizer\.json"):
        load_tokenizer({"tokenizer.json": byte_tokenizer_json()[:200]})


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("sp")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 50)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "m"), vocab_size=300, model_type="bpe",
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return (folder / "m.model").read_bytes()


def test_sentencepiece(sentencepiece_model: bytes) -> None:
    tokenizer = SentencePieceTokenizer(sentencepiece_model)
    ids = tokenizer.encode("the quick é北 fox", add_special=True)
    assert ids[0] == tokenizer.id_of("<s>")
    assert tokenizer.decode(ids) == "the quick é北 fox"
    assert tokenizer.encode("<s>the") == ids[:2]
    assert tokenizer.id_of("no such piece") is None
    assert load_tokenizer({"tokenizer.model": sentencepiece_model}).vocab_size == tokenizer.vocab_size
    with pytest.raises(CorruptModelError):
        SentencePieceTokenizer(b"not a model")


def gguf_of(model: bytes) -> dict[str, object]:
    """What a GGUF file would hold of a sentencepiece model."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.vocab_size())
    types = [
        2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1
        for i in ids
    ]
    return {
        "model": "llama", "tokens": [processor.id_to_piece(i) for i in ids], "token_type": types,
        "scores": [processor.get_score(i) for i in ids], "bos_token_id": processor.bos_id(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def both(sentencepiece_model: bytes) -> tuple[HFTokenizer, SentencePieceTokenizer]:
    ours = HFTokenizer(build_tokenizer(gguf_of(sentencepiece_model)))
    return ours, SentencePieceTokenizer(sentencepiece_model)


@given(text=st.text("the quick brown fox lazy\n\té北", max_size=40))
def test_gguf_sentencepiece_equals_sentencepiece(
    both: tuple[HFTokenizer, SentencePieceTokenizer], text: str
) -> None:
    ours, theirs = both
    normal = " ".join(text.split())  # sentencepiece itself squeezes white space
    assert ours.encode(normal) == theirs.encode(normal)
    assert ours.encode(normal, add_special=True)[0] == ours.id_of("<s>")
    assert ours.decode(ours.encode(normal)) == theirs.decode(theirs.encode(normal)) == normal


NASTY = [
    "Hello world 12345",
    "  a  b\n\n\tc",
    "<|im_start|>user\nhi<|im_end|>",
    "na\xefve caf\xe9 \u6771\u4eac \U0001f469\u200d\U0001f680",
    "don't I'LL we'Re",
    "x=1.50;y",
    "\u0301abc",
    "\u0663\u0664\u0665",
    " ",
    "\r\n\r\n",
    " \xa0 x",
    "<repo_name>a",
    "\xbd \u2167 \xb2",
    "a" * 1000,
    "",
    "\x00\x7f",
    "def f(x):\n    return x  # ok\n",
    "<|im_start|<|im_end|>",
    "word<|endoftext|> word",
    "\U0001f3f3\ufe0f\u200d\U0001f308\U0001f1e9\U0001f1ea",
    "\u200b\ufeff",
    "\u0130stanbul \xdf \ufb01",
    "1,000,000.00",
    "\t\t\n \n",
    "\u2026\u2014\u201cquoted\u201d",
    "https://example.org/a?b=c&d=%20",
]


@pytest.mark.parity
def test_smollm2_equals_transformers() -> None:
    """Against transformers' conversion of the same file, with SmolLM2's own digit splitting, which that
    conversion does not know (checkpoint's tokenizer.json: Digits, then ByteLevel)."""
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    path = demo_model()
    fields = GGUFReader(path).fields
    metadata = {
        name.removeprefix("tokenizer.ggml."): field.contents()
        for name, field in fields.items()
        if name.startswith("tokenizer.ggml.")
    }
    ours = HFTokenizer(build_tokenizer(metadata))
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    theirs.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert set(theirs.all_special_ids) <= ours.special_ids
    for text in NASTY:
        ids = ours.encode(text)
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
        assert ours.decode(ids, skip_special=False) == text
