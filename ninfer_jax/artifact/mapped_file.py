"""A file's bytes without reading them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ninfer_jax.errors import CorruptModelError


def map_bytes(path: Path) -> NDArray[np.uint8]:
    """The file at ``path`` as a read-only memory map ``[size]``. Raises CorruptModelError if it is empty."""
    try:
        return np.memmap(path, dtype=np.uint8, mode="r")
    except ValueError as error:  # what mapping an empty file raises
        raise CorruptModelError(f"{path}: the file is empty") from error
