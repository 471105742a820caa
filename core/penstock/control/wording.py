"""How figures read in the reasons of decisions."""

from __future__ import annotations


def in_time(us: float) -> str:
    """ "140 ms", "1.8 s", "310 us": two or three digits that mean something."""
    if us >= 1e6:
        return f"{us / 1e6:.1f} s" if us < 99.5e6 else f"{us / 1e6:.0f} s"
    if us >= 1e3:
        return f"{us / 1e3:.0f} ms" if us >= 9.95e3 else f"{us / 1e3:.1f} ms"
    return f"{us:.0f} us"


def of_rate(per_s: float) -> str:
    """ "950/s", "3.2/s"."""
    return f"{per_s:.0f}/s" if per_s >= 9.95 or per_s == 0 else f"{per_s:.1f}/s"


def of_bytes(size: float) -> str:
    """ "950 B", "3.2 MB", "12 GB": by thousands."""
    for unit in ("B", "kB", "MB"):
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 9.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.0f} GB" if abs(size) >= 9.95 else f"{size:.1f} GB"


def counted(count: int, what: str) -> str:
    """ "1 shard", "6 shards"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def help_words(promised_us: float, before_us: float | None, after_us: float, share: float) -> str:
    """What a promise came to, in a word or two: `share` is the gain over the promised one, `before_us` the
    latency that was measured when it was made, if any was."""
    if after_us <= promised_us:
        return "as promised"
    if share >= _HELPED:
        return "it helped"
    if share >= _HELPED_LITTLE:
        return "it helped a little"
    return "worse than before" if before_us is not None and after_us > _WORSE * before_us else "no help"


_HELPED, _HELPED_LITTLE = 0.5, 0.1
"""Shares of a promise."""
_WORSE = 1.1
