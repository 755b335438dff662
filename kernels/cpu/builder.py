"""Processes that compile kernels, so that the one which serves never holds a compiler.

Numba and what it leaves behind take some 300 MB. A builder process answers one request after another over
its standard input and output, pickled, and is let go when nobody has asked for a while.
"""

import atexit
import contextlib
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import traceback

from ninfer_jax.kernels.cpu.kernel import Kernel

logger = logging.getLogger(__name__)

IDLE_SECONDS = 10.0
"""How long a process is kept for the next kernel of the program that is being traced."""


_DEAD = (BrokenPipeError, EOFError, pickle.UnpicklingError)
"""What asking a process that has ended, or ends meanwhile, raises."""


class Builder:
    """The asking side. Each thread that asks has a process of its own meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._timer: threading.Timer | None = None

    def build(self, kernel: Kernel, schedule: int) -> bytes:
        """The kernel's object file; where no process can be started, this one compiles it. Raises
        RuntimeError with the compiler's traceback when the kernel does not compile, and when it kills the
        process that compiles it."""
        logger.info("compiling the kernel %s for this processor", kernel.name)
        answer = self._request(kernel, schedule)
        if isinstance(answer, str):
            raise RuntimeError(f"the kernel {kernel.name} does not compile:\n{answer}")
        return answer

    def fault(self) -> str | None:
        """Why nothing can be compiled here, in one line: Numba may be installed and refuse to be imported."""
        answer = self._request(None, 0)
        return answer.strip().splitlines()[-1] if isinstance(answer, str) else None

    def close(self) -> None:
        """Let the idle processes go; the next request starts another."""
        with self._lock:
            processes, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
        for process in processes:
            _end(process)

    def _request(self, kernel: Kernel | None, schedule: int) -> bytes | str:
        try:
            return self._answer(kernel, schedule)
        except OSError as error:
            logger.warning("cannot start a kernel builder (%s): compiling in this process", error)
            return compiled(kernel, schedule)

    def _answer(self, kernel: Kernel | None, schedule: int) -> bytes | str:
        with self._lock:
            process = self._idle.pop() if self._idle else None
        if process is not None:
            with contextlib.suppress(*_DEAD):  # killed while it had nothing to do
                return self._ask(process, kernel, schedule)
        process = _start()
        try:
            return self._ask(process, kernel, schedule)
        except _DEAD:
            return f"the process that compiles it ended with status {process.returncode}"

    def _ask(self, process: subprocess.Popen[bytes], kernel: Kernel | None, schedule: int) -> bytes | str:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((kernel, schedule), process.stdin)
            process.stdin.flush()
            answer: bytes | str = pickle.load(process.stdout)
        except BaseException:  # an answer may still come, which would be taken for the next one's
            _end(process)
            raise
        with self._lock:
            self._idle.append(process)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(IDLE_SECONDS, self.close)
            self._timer.daemon = True
            self._timer.start()
        return answer


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable or "", "-c", f"from {__name__} import main; main()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment())


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(BrokenPipeError):  # of a request that it has not read
        process.communicate()


def _environment() -> dict[str, str]:
    """Of a builder process: the same modules, no accelerator taken, and no switch of Numba's that is meant
    for somebody else's code: what is made here is kept."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {**inherited, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}


def compiled(kernel: Kernel | None, schedule: int) -> bytes | str:
    """The object file, or the traceback of a kernel that does not compile. Without a kernel: nothing, or the
    traceback of a compiler that cannot be imported."""
    try:
        from ninfer_jax.kernels.cpu.compiler import object_code  # Numba: not in a process that serves

        return object_code(kernel, schedule) if kernel else b""
    except Exception:
        return traceback.format_exc()


def _end_with_asker() -> None:
    """End at once when the asking process is gone, however it went: a kernel takes seconds."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLHUP)
    poll.poll()
    os._exit(0)


def main() -> None:
    """A builder process: answers until its input ends."""
    threading.Thread(target=_end_with_asker, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C reaches it too; its asker decides
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a library prints is no answer. Whoever serves may have closed its standard error.
    os.dup2(sys.stderr.fileno() if sys.stderr else os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            kernel, schedule = pickle.load(sys.stdin.buffer)
            pickle.dump(compiled(kernel, schedule), answers)
            answers.flush()


builder = Builder()
atexit.register(builder.close)
