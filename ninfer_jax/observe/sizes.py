"""Numbers as people read them."""


def binary_size(nbytes: int) -> str:
    """``93.8 MiB``; whole bytes below 1 KiB."""
    if nbytes < 1024:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def short_count(count: int) -> str:
    """``134.5M``; as it is below 1,000."""
    value = float(count)
    for unit in ("", "K", "M", "B"):
        if value < 1000:
            return f"{value:.1f}{unit}" if unit else str(count)
        value /= 1000
    return f"{value:.1f}T"
