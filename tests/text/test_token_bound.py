"""A prompt that fits must never be refused: the bound is checked against real tokenising."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ninfer_jax.errors import ContextLengthExceededError
from ninfer_jax.text.piece_bytes import SPACE_MARK, byte_alphabet
from ninfer_jax.text.tokenizer import HFTokenizer
from tests.text.fakes import conversation, frontend, turn

SPACE = "\u0120"  # a space in the byte-level alphabet


def byte_level() -> Tokenizer:
    """All bytes, and runs of two and of four spaces."""
    vocabulary = dict(byte_alphabet()) | {SPACE * 2: 256, SPACE * 4: 257}
    merges = [(SPACE, SPACE), (SPACE * 2, SPACE * 2)]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_level_nfc() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def metaspace() -> Tokenizer:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {SPACE_MARK: 256, SPACE_MARK * 2: 257}
    tokenizer = Tokenizer(models.BPE(vocabulary, [(SPACE_MARK, SPACE_MARK)], byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE_MARK), normalizers.Replace(" ", SPACE_MARK)]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback()])
    return tokenizer


def stripping() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Strip()
    return tokenizer


def swallowing() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def with_an_unknown_token() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteFallback()
    return tokenizer


def only_a_and_e_acute() -> Tokenizer:
    """Drops every other byte, as the vocabulary of SmolLM drops some control characters."""
    spelled = {byte: char for char, byte in byte_alphabet().items()}
    vocabulary = {spelled[byte]: number for number, byte in enumerate("a\u00e9".encode())}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TEXT = st.text(
    st.sampled_from(f"ab {SPACE_MARK}\n\u00e9\ud55c\u1112\u1161\u11ab\u212a\u1fbe\u0308\u0301"), max_size=60
)


@pytest.mark.parametrize("build", [byte_level, byte_level_nfc, metaspace, only_a_and_e_acute])
@given(text=TEXT)
def test_never_more_than_there_are(build, text):
    tokenizer = HFTokenizer(build())
    assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text))


def test_runs_of_the_longest_token_meet_the_bound():
    tokenizer = HFTokenizer(byte_level())
    assert tokenizer.least_tokens(" " * 4000) == len(tokenizer.encode(" " * 4000)) == 1000


def test_the_longest_shrinking_text_stays_within_it():
    tokenizer = HFTokenizer(byte_level_nfc())
    shrunk = "\u1fbe\u0308\u0301" * 1000  # 7 bytes that NFC makes 2
    assert len(tokenizer.encode(shrunk)) == 2000
    assert 0 < tokenizer.least_tokens(shrunk) <= 2000


def test_bytes_that_the_vocabulary_lacks_do_not_count():
    tokenizer = HFTokenizer(only_a_and_e_acute())
    text = "a\u00e9 bc" * 100
    assert tokenizer.least_tokens(text) == len(tokenizer.encode(text)) == 300


@pytest.mark.parametrize("build", [stripping, swallowing, with_an_unknown_token])
def test_no_bound_where_text_can_vanish(build):
    tokenizer = HFTokenizer(build())
    vanishing = "<mask>" + " " * 4000 + "<mask>" if build is swallowing else " " * 4000
    assert len(tokenizer.encode(vanishing)) <= 2
    assert tokenizer.least_tokens(vanishing) == 0


def test_a_hopeless_prompt_is_refused_without_tokenising_it(monkeypatch):
    front = frontend(max_context=100)
    monkeypatch.setattr(front.tokenizer, "encode", lambda *_, **__: pytest.fail("tokenised"))
    with pytest.raises(ContextLengthExceededError, match=r"at least \d+ tokens, the context holds 100"):
        front.prepare(conversation(turn("user", "x" * 4000)))
    with pytest.raises(ContextLengthExceededError, match=r"at least \d+ tokens, the context holds 100"):
        front.prepare_text("x" * 4000)
