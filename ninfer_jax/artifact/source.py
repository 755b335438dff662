"""What a checkpoint looks like to the rest of this package, whatever file it came from.

Every source speaks Hugging Face: a ``config.json`` mapping and tensors under their Hugging Face names
and layouts. ``weights.py`` turns it into a model's weight tree; nothing else reads tensors.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

SourceKind: TypeAlias = Literal["gguf", "huggingface", "ninfer", "random"]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One stored tensor. ``format`` is the file's own word for its encoding (``Q4_1``, ``BF16``)."""

    shape: tuple[int, ...]
    format: str
    nbytes: int


class Source(Protocol):
    """A checkpoint that is open for reading. Tensors stay on disk until ``read`` asks for rows."""

    @property
    def kind(self) -> SourceKind: ...
    @property
    def path(self) -> Path: ...
    @property
    def model_id(self) -> str: ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The model's ``config.json``, or the equivalent that its metadata amount to."""
        ...

    @property
    def resources(self) -> Mapping[str, bytes]:
        """Frontend files by name, byte for byte: tokenizer, chat template, generation config ..."""
        ...

    @property
    def formats(self) -> Mapping[str, int]:
        """How many tensors are stored in each format."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every weight tensor by Hugging Face name; also those that no model will ask for."""
        ...

    def read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Rows ``[start, stop)`` of a tensor (axis 0), dequantised: float32, float16 or bfloat16.

        Safe to call from several threads. Raises CorruptModelError naming the tensor.
        """
        ...


def count_formats(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    """How many tensors have each format, most frequent first."""
    return dict(Counter(tensor.format for tensor in tensors.values()).most_common())
