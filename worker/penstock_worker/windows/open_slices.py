"""The slices of one key that wait for the watermark: their accumulators in the key's state.

They lie in one value, since a key has few of them at once and a call for state costs more than packing
those. Where they may become many or large, a map stands beside it: slices go there, an entry each,
when the value has grown over `TOGETHER_BYTES_MAX`, so that a row never rewrites all of them. Neighbours:
`aligned_windows` (who asks), `making` (accumulators).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import MapState

from penstock_worker.windows.making import Aggregators
from penstock_worker.windows.packed_value import packed_value
from penstock_worker.windows.slices import Slicing
from penstock_worker.windows.stored_types import pack, tuple_type, unpacker

TOGETHER_BYTES_MAX = 4096
_FEW_SLICES = 32

Accumulators = tuple[Any, ...]


@dataclass(slots=True)
class Open:
    """A key's slices, by their starts in milliseconds: those in the value, and those of the map that were
    looked at, of its `apart_count`. The key's timer is set for `next_end_ms`, when its next window ends."""

    next_end_ms: int | None = None
    apart_count: int = 0
    together: dict[int, Accumulators] = field(default_factory=dict)
    apart: dict[int, Accumulators] = field(default_factory=dict)


class OpenSlices:
    """Reads and writes them; one for a processor, on whatever key its state calls go to."""

    def __init__(self, handle: StatefulProcessorHandle, slicing: Slicing, aggregators: Aggregators) -> None:
        self._value = packed_value(handle, "windows")
        self._map: MapState | None = None
        if not aggregators.small or slicing.slices_each > _FEW_SLICES:
            self._map = handle.getMapState("windowsApart", "start bigint", "packed binary")
        each = tuple_type([int, aggregators.stored])
        slices = list[each]  # type: ignore[valid-type]  # a type made at run time
        self._unpack = unpacker(tuple_type([int | None, int, slices]))
        self._unpack_apart = unpacker(aggregators.stored)

    def read(self) -> Open:
        """The key's, without those of the map."""
        packed = self._value.get()
        if packed is None:
            return Open()
        next_end_ms, apart_count, slices = self._unpack(packed)
        return Open(next_end_ms, apart_count, dict(slices))

    def read_all(self) -> Open:
        """The key's, with those of the map."""
        found = self.read()
        if found.apart_count:
            for (start,), (packed,) in self._there.iterator():
                found.apart[start] = self._unpack_apart(packed)
        return found

    def accumulators(self, found: Open, start: int) -> Accumulators | None:
        """Of one slice; None where it has no rows yet."""
        together = found.together.get(start)
        if together is not None or not found.apart_count:
            return together
        entry = self._there.getValue((start,))
        if entry is not None:
            found.apart[start] = self._unpack_apart(entry[0])
        return found.apart.get(start)

    def put(self, found: Open, start: int, accumulators: Accumulators) -> None:
        """Of one slice that was asked for."""
        if start in found.apart:
            found.apart[start] = accumulators
            self._there.updateValue((start,), (pack(accumulators),))
        else:
            found.together[start] = accumulators

    def remove(self, found: Open, start: int) -> None:
        """One slice of all."""
        if found.together.pop(start, None) is None:
            del found.apart[start]
            found.apart_count -= 1
            self._there.removeKey((start,))

    def write(self, found: Open) -> None:
        """Keep what `put` and `remove` did, and `next_end_ms`."""
        if not found.together and not found.apart_count:
            self._value.put(None)
            return
        packed = _packed(found)
        if len(packed) > TOGETHER_BYTES_MAX and self._map is not None:
            for start, accumulators in found.together.items():
                self._map.updateValue((start,), (pack(accumulators),))
            found.apart_count += len(found.together)
            found.together.clear()
            packed = _packed(found)
        self._value.put(packed)

    @property
    def _there(self) -> MapState:
        return cast("MapState", self._map)


def _packed(found: Open) -> bytes:
    return pack((found.next_end_ms, found.apart_count, list(found.together.items())))
