"""When a stream must say something: some clients count events, not bytes, and a held tool call or a long
prompt can give none for minutes. Comments, which go out sooner, do not reach them."""

SIGN_OF_LIFE_SECONDS = 15.0


class SignOfLife:
    """Times are the engine's, in seconds."""

    def __init__(self) -> None:
        self._last_event_at = 0.0

    def spoke(self, at: float) -> None:
        self._last_event_at = at

    def is_due(self, at: float) -> bool:
        return at - self._last_event_at >= SIGN_OF_LIFE_SECONDS
