"""What state with a time to live is packed with: when it expires (ms of the steady clock).

Neighbours: `expiring` stamps and looks, `evolution` translates what is under a stamp.
"""

from __future__ import annotations

import msgspec

from penstock_worker.state.encoding import pack

Packed = bytes | msgspec.Raw
_STAMPED = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def stamped(packed: Packed, expires_ms: int) -> bytes:
    return pack((expires_ms, msgspec.Raw(packed)))


def expires_ms(raw: Packed) -> int:
    return _STAMPED.decode(raw)[0]


def has_expired(raw: Packed, now_ms: int) -> bool:
    return expires_ms(raw) <= now_ms


def unstamped(raw: Packed) -> tuple[int, msgspec.Raw]:
    """When it expires, and what was packed."""
    return _STAMPED.decode(raw)


def living(raw: Packed | None, now_ms: int) -> msgspec.Raw | None:
    """What was packed, unless it has expired."""
    if raw is None:
        return None
    until_ms, packed = _STAMPED.decode(raw)
    return packed if until_ms > now_ms else None
