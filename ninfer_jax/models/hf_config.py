"""Reading a Hugging Face ``config.json`` strictly: what we do not implement is refused by name."""

from collections.abc import Mapping
from typing import Any, TypeVar

from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.models.common import LinearScaling, Llama3Scaling, Rope

T = TypeVar("T")
_REQUIRED: Any = object()


class ConfigReader:
    """Typed access to the members of one JSON object. ``path`` prefixes names in errors."""

    def __init__(self, config: Mapping[str, Any], path: str = "") -> None:
        self._config = config
        self._path = path

    def name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def value(self, key: str, kind: type[T] | tuple[type[T], ...], default: Any = _REQUIRED) -> T:
        """Absent and null members take the default; CorruptModelError where there is none."""
        value = self._config.get(key)
        if value is None:
            if default is _REQUIRED:
                raise CorruptModelError(f"config.json lacks {self.name(key)}", field=self.name(key))
            value = default
        is_bool_as_number = isinstance(value, bool) and kind is not bool
        if not isinstance(value, kind) or is_bool_as_number:
            raise CorruptModelError(f"config.json: {self.name(key)} is {value!r}", field=self.name(key))
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        return self.value(key, str, default)

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        return self.value(key, bool, default)

    def size(self, key: str, default: Any = _REQUIRED) -> int:
        size = self.value(key, int, default)
        if size < 1:
            raise CorruptModelError(f"config.json: {self.name(key)} is {size}", field=self.name(key))
        return size

    def number(self, key: str, default: Any = _REQUIRED) -> float:
        number: float = self.value(key, (int, float), default)
        if not 0 < number < float("inf"):
            raise CorruptModelError(f"config.json: {self.name(key)} is {number}", field=self.name(key))
        return float(number)

    def section(self, key: str) -> "ConfigReader | None":
        section = self.value(key, dict, default={})
        return ConfigReader(section, self.name(key)) if section else None

    def expect(self, key: str, supported: Any, default: Any) -> None:
        """UnsupportedModelError unless the member (or its default) is the one value we implement."""
        value = self._config.get(key)
        if (default if value is None else value) != supported:
            raise UnsupportedModelError(
                f"{self.name(key)} {value!r} is not supported (only {supported!r})", field=self.name(key)
            )


def read_rope(read: ConfigReader, head_dim: int) -> Rope:
    """Both spellings: ``rope_theta`` beside ``rope_scaling`` (old), one ``rope_parameters`` (new).

    Scaling types ``default``, ``linear`` and ``llama3`` are implemented.
    """
    section = read.section("rope_parameters") or read.section("rope_scaling")
    top_theta = read.number("rope_theta", default=10000.0)
    fraction = read.number("partial_rotary_factor", default=1.0)
    if section is None:
        return Rope(int(head_dim * fraction), top_theta)
    theta = section.number("rope_theta", default=top_theta)
    rotary_dim = int(head_dim * section.number("partial_rotary_factor", default=fraction))
    kind_key = "type" if section.value("rope_type", str, default="") == "" else "rope_type"
    kind = section.text(kind_key, default="default")
    if kind == "default":
        return Rope(rotary_dim, theta)
    if kind == "linear":
        return Rope(rotary_dim, theta, LinearScaling(section.number("factor")))
    if kind == "llama3":
        scaling = Llama3Scaling(
            section.number("factor"),
            section.number("low_freq_factor"),
            section.number("high_freq_factor"),
            section.size("original_max_position_embeddings"),
        )
        return Rope(rotary_dim, theta, scaling)
    raise UnsupportedModelError(f"rope type {kind!r} is not supported", field=section.name(kind_key))
