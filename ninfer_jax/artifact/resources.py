"""Which files travel with a model besides its weights. The text layer says what they mean."""

from ninfer_jax.artifact.gguf_text import TOKENIZER as GGUF_TOKENIZER

TOKENIZERS = ("tokenizer.json", "tokenizer.model")
"""One of these makes a checkpoint folder servable."""

RESOURCES = (
    *TOKENIZERS,
    GGUF_TOKENIZER,
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
"""Everything that is carried, byte for byte, where it is there."""
