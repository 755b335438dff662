"""Which tensors a checkpoint must have, may have, and must not have."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from ninfer_jax.artifact.source import TensorInfo
from ninfer_jax.errors import CorruptModelError
from ninfer_jax.models.base import ArraySpec, ModelConfig, Weights
from ninfer_jax.models.groups import GROUP_PREFIXES, abstract_groups

IGNORABLE = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|masked_bias|attn\.bias)")
"""Buffers that some exporters write beside the weights and that a model computes for itself."""


def check_names(specs: Iterable[ArraySpec], tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    """Every tensor that the specs want is there in its shape, and there is no other.

    Returns how many tensors of each group that the specs do not touch are left aside. Raises
    CorruptModelError naming the first offender in the file's order.
    """
    wanted = {
        name: shape for spec in specs for name, shape in zip(spec.sources, spec.source_shapes, strict=True)
    }
    for name, shape in wanted.items():
        if name not in tensors:
            raise CorruptModelError(f"tensor {name} is missing", field=name)
        if tensors[name].shape != shape:
            raise CorruptModelError(
                f"tensor {name} has shape {list(tensors[name].shape)}, expected {list(shape)}", field=name
            )
    left_aside: Counter[str] = Counter()
    for name in tensors:
        if name in wanted or _is_harmless(name, wanted):
            continue
        group = _group_left_aside(name, wanted)
        if group is None:
            raise CorruptModelError(f"tensor {name} is left over: the model has no such weight", field=name)
        left_aside[group] += 1
    return dict(left_aside)


def _is_harmless(name: str, wanted: Iterable[str]) -> bool:
    """Buffers; and the copy of a tied head that exporters write: it is the embedding."""
    is_tied_copy = name == "lm_head.weight" and name not in wanted
    return is_tied_copy or IGNORABLE.fullmatch(name) is not None


def present_groups(config: ModelConfig, tensors: Iterable[str]) -> dict[str, Weights]:
    """The groups, of those that the configuration describes, that a checkpoint has any tensor of."""
    names = list(tensors)
    return {
        group: specs
        for group, specs in abstract_groups(config).items()
        if any(name.startswith(GROUP_PREFIXES[group]) for name in names)
    }


def _group_left_aside(name: str, wanted: Iterable[str]) -> str | None:
    for group, prefix in GROUP_PREFIXES.items():
        if name.startswith(prefix) and not any(other.startswith(prefix) for other in wanted):
            return group
    return None
