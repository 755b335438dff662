"""Leniency, one mechanism for every protocol: what asks for more than there is, short of a guarantee."""

from ninfer_jax.errors import UnsupportedFeatureError
from ninfer_jax.server.protocols.refusals import unsupported

ADVICE = "a server started with --lenient-api ignores it"


class Hints:
    """One request's hints. Each is refused by name; under ``--lenient-api`` it is dropped instead, and
    remembered for the request's log line."""

    def __init__(self, lenient: bool = False) -> None:
        self.ignored: list[str] = []
        self._lenient = lenient

    def refuse(self, field: str, reason: str, *, value: str = "") -> None:
        """``reason`` says what is missing, ``value`` what the field asked for, if that is to blame.
        Raises UnsupportedFeatureError, unless lenient."""
        self.refuse_with(unsupported(field, reason, value=value))

    def refuse_with(self, error: UnsupportedFeatureError, *, log_as: str | None = None) -> None:
        """As :meth:`refuse`, with an error of the caller's. ``log_as`` names the field in the log where
        its own name is the client's word."""
        if not self._lenient:
            raise UnsupportedFeatureError(f"{error.message}; {ADVICE}", field=error.field, code=error.code)
        self.drop(log_as or error.field or error.code)

    def drop(self, field: str) -> None:
        """Note what has no effect for anyone, lenient or not."""
        self.ignored.append(field)
