"""A weight tree as Orbax stores it: flat, by leaf name; and back, straight onto the device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import SingleDeviceSharding
from numpy.typing import NDArray

from ninfer_jax.artifact.assemble import HostLeaf
from ninfer_jax.artifact.container import TensorEntry
from ninfer_jax.config import WeightFormat
from ninfer_jax.errors import CorruptModelError, UnsupportedModelError
from ninfer_jax.kernels.linear import QuantArray, quantise
from ninfer_jax.models.base import ArraySpec, Weights
from ninfer_jax.models.weights import is_spec

DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}


def named_specs(specs: Weights) -> dict[str, ArraySpec]:
    """Every spec by its place in the tree, in tree order."""
    leaves = jax.tree_util.tree_leaves_with_path(specs, is_leaf=is_spec)
    return {jax.tree_util.keystr(path, simple=True, separator="."): spec for path, spec in leaves}


def stored_layout(name: str, spec: ArraySpec, weight_format: WeightFormat) -> dict[str, TensorEntry]:
    """The arrays that one leaf is stored as."""
    if spec.role == "vector" or weight_format == "f32":
        return {name: TensorEntry(spec.shape, "float32")}
    if weight_format == "bf16":
        return {name: TensorEntry(spec.shape, "bfloat16")}
    return {
        f"{name}.values": TensorEntry(spec.shape, "int8"),
        f"{name}.scale": TensorEntry(spec.shape[:-1], "float32"),
    }


def tensor_table(specs: Weights, weight_format: WeightFormat) -> dict[str, TensorEntry]:
    """All arrays of a model's checkpoint by name."""
    table: dict[str, TensorEntry] = {}
    for name, spec in named_specs(specs).items():
        table |= stored_layout(name, spec, weight_format)
    return table


def save_weights(path: Path, specs: Weights, tree: Weights) -> None:
    """Write host leaves (see ``assemble.load_weights`` with ``place`` the identity) as a new checkpoint."""
    leaves: list[HostLeaf] = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, QuantArray))
    arrays: dict[str, NDArray[Any]] = {}
    for name, leaf in zip(named_specs(specs), leaves, strict=True):
        if isinstance(leaf, QuantArray):
            arrays |= {f"{name}.values": np.asarray(leaf.values), f"{name}.scale": np.asarray(leaf.scale)}
        else:
            arrays[name] = leaf
    with _checkpointer() as checkpointer:
        checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(arrays))


def restore_weights(
    path: Path,
    specs: Weights,
    table: Mapping[str, TensorEntry],
    stored: WeightFormat,
    wanted: WeightFormat,
    activation_dtype: np.dtype[Any],
) -> Weights:
    """The tree on the default device, in ``wanted`` format.

    ``table`` is the manifest's list of what is stored. Raises CorruptModelError naming an array that is
    missing, left over, mis-shaped or not the checkpoint's, UnsupportedModelError where int8 would have
    to be widened.
    """
    if stored == "int8" != wanted:
        raise UnsupportedModelError(
            f"the artifact holds int8 weights; for {wanted} convert its source again with --weights {wanted}",
            field="weights",
        )
    check_table(tensor_table(specs, stored), table)
    names = named_specs(specs)
    dtypes: dict[str, np.dtype[Any]] = {name: DTYPES[entry.dtype] for name, entry in table.items()}
    for name, spec in names.items():
        if spec.role == "vector":
            dtypes[name] = DTYPES["float32"] if spec.keep_float32 else activation_dtype
        elif stored != "int8":
            dtypes[name] = DTYPES["bfloat16" if wanted == "bf16" else "float32"]
    arrays = _restore(path, table, dtypes)

    def leaf(name: str, spec: ArraySpec) -> Any:
        if name not in arrays:
            return QuantArray(arrays[f"{name}.values"], arrays[f"{name}.scale"])
        must_quantise = wanted == "int8" and spec.role != "vector"
        return quantise(arrays.pop(name)) if must_quantise else arrays[name]

    structure = jax.tree.structure(specs, is_leaf=is_spec)
    return jax.tree.unflatten(structure, [leaf(name, spec) for name, spec in names.items()])


def check_table(expected: Mapping[str, TensorEntry], found: Mapping[str, TensorEntry]) -> None:
    """The model's arrays and the listed ones are the same."""
    for name, entry in expected.items():
        if name not in found:
            raise CorruptModelError(f"tensor {name} is missing", field=name)
        if found[name] != entry:
            raise CorruptModelError(
                f"tensor {name} is {found[name].dtype} {list(found[name].shape)}, "
                f"expected {entry.dtype} {list(entry.shape)}",
                field=name,
            )
    for name in found:
        if name not in expected:
            raise CorruptModelError(f"tensor {name} is left over: the model has no such weight", field=name)


def _checkpointer() -> ocp.Checkpointer:
    # Weights hardly compress, and decompression would cost more than reading them.
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_compression=False))


def _restore(
    path: Path, table: Mapping[str, TensorEntry], dtypes: Mapping[str, np.dtype[Any]]
) -> dict[str, jax.Array]:
    sharding = SingleDeviceSharding(jax.devices()[0])
    arguments = {
        name: ocp.ArrayRestoreArgs(sharding=sharding, global_shape=entry.shape, dtype=dtypes[name])
        for name, entry in table.items()
    }
    try:
        with _checkpointer() as checkpointer:
            restored: dict[str, jax.Array] = checkpointer.restore(
                path.absolute(), args=ocp.args.PyTreeRestore(restore_args=arguments)
            )
    except (ValueError, KeyError, OSError) as error:  # hashes were right, so it was written wrong
        raise CorruptModelError(f"{path}: not the checkpoint that the manifest describes: {error}") from error
    return restored
