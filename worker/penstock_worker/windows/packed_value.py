"""A value state of bytes that windows have packed themselves, in Spark's state and in Penstock's.

It is one of the schema `packed binary` in both. Penstock's is reached without a check of what is known to be
bytes. Neighbours: `open_slices` (who asks), `state.handle` (which has it).
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql.streaming import StatefulProcessorHandle

from penstock_worker.state.handle import TaskHandle


class PackedValue(Protocol):
    """Of the key at hand; None for nothing."""

    def get(self) -> bytes | None: ...

    def put(self, packed: bytes | None) -> None: ...


def packed_value(handle: StatefulProcessorHandle, name: str) -> PackedValue:
    """The value state `name`."""
    return handle.getPackedValue(name) if isinstance(handle, TaskHandle) else _SparksValue(handle, name)


class _SparksValue:
    def __init__(self, handle: StatefulProcessorHandle, name: str) -> None:
        self._state = handle.getValueState(name, "packed binary")

    def get(self) -> bytes | None:
        found = self._state.get()
        return None if found is None else found[0]

    def put(self, packed: bytes | None) -> None:
        if packed is None:
            self._state.clear()
        else:
            self._state.update((packed,))
