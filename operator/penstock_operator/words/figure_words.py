"""Numbers as people read them; what is unknown is a dash, never a zero."""

from __future__ import annotations

from collections.abc import Sequence

UNKNOWN = "–"
_BARS = "▁▂▃▄▅▆▇█"


def count(number: float | None) -> str:
    """12345.6 -> "12 346"."""
    return UNKNOWN if number is None else f"{number:,.0f}".replace(",", " ")


def rate(per_s: float | None) -> str:
    """Per second: whole numbers, or one decimal where that says more."""
    if per_s is None:
        return UNKNOWN
    return f"{per_s:.1f}" if 0 < per_s < 10 else count(per_s)


def latency(milliseconds: float | None) -> str:
    """Three digits and a unit: "2.45 ms", "1.25 s"."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 999.5:
        return f"{_three_digits(milliseconds)} ms"
    if milliseconds < 600_000:
        return f"{_three_digits(milliseconds / 1000)} s"
    return duration(milliseconds / 1000)


def duration(seconds: float) -> str:
    """75.2 -> "1:15", 3675 -> "1:01:15"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(amount_bytes: float) -> str:
    """Memory, such as "2.3 GiB"."""
    if amount_bytes >= 1 << 30:
        return f"{amount_bytes / (1 << 30):.1f} GiB"
    return f"{amount_bytes / (1 << 20):.0f} MiB"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last `width` values as bars from zero to their highest; a gap where one is unknown."""
    shown = list(values)[-width:]
    top = max((value for value in shown if value is not None), default=0.0)
    bars = "".join(_bar(value, top) for value in shown)
    return bars.rjust(width)


def _bar(value: float | None, top: float) -> str:
    if value is None:
        return " "
    return _BARS[min(len(_BARS) - 1, int(value / top * len(_BARS)))] if top > 0 else _BARS[0]


def _three_digits(number: float) -> str:
    decimals = 2 if number < 9.995 else 1 if number < 99.95 else 0
    return f"{number:.{decimals}f}"
