"""Members that ask for more than this server has, but not for a guarantee."""

from ninfer_jax.server.protocols.refusals import unsupported


class Hints:
    """Refuses them by name; under ``--lenient-api`` drops them instead, and remembers which for the log."""

    def __init__(self, lenient: bool) -> None:
        self.lenient = lenient
        self.ignored: list[str] = []

    def refuse(self, field: str, reason: str) -> None:
        """Raises UnsupportedFeatureError, unless lenient."""
        if not self.lenient:
            raise unsupported(field, reason)
        self.ignored.append(field)
