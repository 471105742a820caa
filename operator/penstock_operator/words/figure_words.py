"""Numbers as people read them; what is unknown is a dash, never a zero."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

UNKNOWN = "–"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEAR_MS = 12 * 3_600_000
_DAY_MS = 86_400_000
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


def moment(at_ms: int | None, lag_ms: int | None) -> str:
    """Of event time, in UTC: "12:00:05" where it is within half a day of now, else with its day."""
    at = time_of(at_ms)
    if at is None:
        return UNKNOWN
    if lag_ms is not None and abs(lag_ms) <= _NEAR_MS:
        return f"{at:%H:%M:%S}"
    return at.replace(tzinfo=None).isoformat(" ", "seconds")


def instant(at_ms: int | None) -> str | None:
    """RFC 3339 to the millisecond, None where `at_ms` is not known."""
    at = time_of(at_ms)
    return None if at is None else f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def behind(lag_ms: int) -> str:
    """ "3.2 s behind", "1:15:00 behind", "412 days behind"; "2.0 s ahead" where the clock is behind."""
    far_ms = abs(lag_ms)
    if far_ms < 600_000:
        text = f"{far_ms / 1000:.1f} s"
    elif far_ms < 2 * _DAY_MS:
        text = duration(far_ms / 1000)
    else:
        text = f"{count(far_ms // _DAY_MS)} days"
    return f"{text} {'ahead' if lag_ms < 0 else 'behind'}"


def time_of(at_ms: int | None) -> datetime | None:
    """None for what no calendar has, too."""
    try:
        return None if at_ms is None else _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return None


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
