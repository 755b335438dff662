"""Where this project keeps what it can make again: compiled programs, machine code, converted files."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_home(environ: Mapping[str, str] = os.environ) -> Path:
    """A folder that exists and can be written: ``$XDG_CACHE_HOME/ninfer-jax`` or ``~/.cache/ninfer-jax``, and
    where neither can be (a container with a read-only home) a private one in the temporary directory.
    """
    base = environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "ninfer-jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _private_temporary_folder()


def _private_temporary_folder() -> Path:
    """The same one at each start, unless somebody else has made it: programs are read from there."""
    folder = Path(tempfile.gettempdir()) / f"ninfer-jax-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat(follow_symlinks=False).st_uid == os.getuid() and not folder.is_symlink():
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="ninfer-jax-"))
