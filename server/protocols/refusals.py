"""Errors that every protocol words alike: a guarantee we cannot give, vision that is not there."""

from ninfer_jax.errors import UnsupportedFeatureError


def unsupported(field: str, guarantee: str, *, value: str = "") -> UnsupportedFeatureError:
    """``guarantee`` says what is missing; ``value`` is what the field asked for, if that is to blame."""
    asked = f"{field} {value[:64]!r}" if value else field
    return UnsupportedFeatureError(f"{asked} is not supported: {guarantee}", field=field)


def vision_disabled(path: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{path} is an image or video, and this server runs without vision",
        field=path,
        code="vision_disabled",
    )
