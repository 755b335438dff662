"""jax's cache of compiled programs on disk: where it lies, how large it may grow, what a bad file costs.

jax tells what it cannot read or write as a warning, compiles, and leaves a damaged file where it is. Here
such a warning becomes one line of the log, and the file goes before jax has compiled its program and writes
it anew.
"""

import logging
import re
import threading
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

import jax

from ninfer_jax.cache_home import cache_home

logger = logging.getLogger(__name__)

CACHE_DIRECTORY = "jax_compilation_cache_dir"
CACHE_SETTINGS: Mapping[str, Any] = {
    CACHE_DIRECTORY: None,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
"""jax's options, with what we set; None is the directory chosen at run time."""

LIMIT = 2**30
"""Bytes. Each version of jax, of this project and of a model leaves its programs. jax's own bound,
``jax_compilation_cache_max_size``, takes a lock and reads every entry's time at each write, needs a package
more, and writes nothing beside entries from before it was set."""

FAILURE = "Error (reading|writing) persistent compilation cache entry for "
_FAILURE = re.compile(FAILURE + r"'(?P<program>.*?)': (?P<error>.*)", re.DOTALL)
_ZSTD = b"\x28\xb5\x2f\xfd"


def enable_compilation_cache() -> Path | None:
    """Keep every compiled program on disk: in the directory that jax was told (its option, or
    ``$JAX_COMPILATION_CACHE_DIR``), else ``xla`` in :func:`cache_home`, which is also kept below ``LIMIT``.
    Returns the directory; None where it cannot be made, and programs are then compiled at each start."""
    own = cache_home() / "xla"
    directory = Path(getattr(jax.config, CACHE_DIRECTORY) or own)
    path: str | None = str(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("cannot keep compiled programs in %s: %s", directory, error.strerror)
        path = None
    for name, value in CACHE_SETTINGS.items():
        jax.config.update(name, path if value is None else value)  # type: ignore[no-untyped-call]
    if path is None:
        return None
    if _watch(directory) and directory == own:
        remove_oldest(directory, LIMIT)
    return directory


def remove_oldest(directory: Path, limit: int) -> None:
    """Remove what was not used for longest until the files in ``directory`` have at most ``limit`` bytes."""
    try:
        stats = [(path, path.stat()) for path in directory.rglob("*") if path.is_file()]
        total = sum(stat.st_size for _, stat in stats)
        for path, stat in sorted(stats, key=lambda entry: max(entry[1].st_atime, entry[1].st_mtime)):
            if total <= limit:
                break
            path.unlink(missing_ok=True)
            total -= stat.st_size
    except OSError as error:  # another server is at it, or the folder is read-only
        logger.debug("cannot make room in %s: %s", directory, error)


def discard(directory: Path, program: str, *, only_damaged: bool) -> int:
    """Remove the entries of ``program`` (``jit_x``), or those that cannot be unpacked; how many there were.

    A warning of jax names the program, not which of its entries. OSError where one cannot be removed."""
    entry = re.compile(re.escape(program) + "-[0-9a-f]{64}-cache")
    paths = [path for path in directory.iterdir() if entry.fullmatch(path.name)]
    bad = [path for path in paths if not only_damaged or not is_whole(path.read_bytes())]
    for path in bad:
        path.unlink(missing_ok=True)
    return len(bad)


def is_whole(entry: bytes) -> bool:
    """Whether jax can unpack it: zlib, or Zstandard where that is installed."""
    if not entry.startswith(_ZSTD):
        try:
            zlib.decompress(entry)
        except zlib.error:
            return False
        return True
    try:
        import zstandard
    except ImportError:
        return True  # left by an installation that has it: jax looks for another name
    try:
        zstandard.ZstdDecompressor().decompress(entry)
    except zstandard.ZstdError:
        return False
    return True


class ShowWarning(Protocol):
    """The form of :func:`warnings.showwarning`."""

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None: ...


class CacheWarnings:
    """Stands where :func:`warnings.showwarning` stood: hears what jax says of its cache, passes the rest on.
    Called on any thread that compiles, before it compiles."""

    def __init__(self, directory: Path, show: ShowWarning) -> None:
        self.directory = directory
        self.show = show
        self._is_unwritable = False
        self._replaced: set[str] = set()
        self._lock = threading.Lock()

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        failure = _FAILURE.fullmatch(str(message))
        if failure is None:
            self.show(message, category, filename, lineno, file, line)
            return
        program, error = failure["program"], " ".join(failure["error"].split())
        with self._lock:
            if failure[1] == "reading":
                self._replace(program, error)
            else:
                self._give_up(program, error)

    def _replace(self, program: str, error: str) -> None:
        """Remove what cannot be unpacked, else (XLA cannot read what is inside) all entries of ``program``;
        this once, for of several bad ones read at the same time the first warning has removed all."""
        try:
            removed = discard(self.directory, program, only_damaged=True)
            if not removed and program not in self._replaced:
                removed = discard(self.directory, program, only_damaged=False)
        except OSError as failure:
            removed, error = 1, f"{error}; {failure}"
        self._replaced.add(program)
        if removed:
            logger.warning(
                "compiling %s again: its file in %s was damaged (%s)", program, self.directory, error
            )

    def _give_up(self, program: str, error: str) -> None:
        if not self._is_unwritable:
            self._is_unwritable = True
            logger.warning(
                "cannot keep compiled programs in %s, the next start compiles them again: %s",
                self.directory,
                error,
            )
        try:
            discard(self.directory, program, only_damaged=True)  # a full disk has kept the beginning
        except OSError as failure:
            logger.debug("%s", failure)


def _watch(directory: Path) -> bool:
    """Whether it was not watched before."""
    warnings.filterwarnings("always", FAILURE, UserWarning)  # else a second one of the same text is left out
    present = warnings.showwarning
    if isinstance(present, CacheWarnings):
        if present.directory == directory:
            return False
        present = present.show
    warnings.showwarning = CacheWarnings(directory, present)
    return True
