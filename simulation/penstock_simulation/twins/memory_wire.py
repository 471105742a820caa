"""The twin in memory of the hash in which a node's store keeps the Schedules for its agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.store.redis.connection import Command


class MemoryWire:
    """Keeps the port `Wire` of `schedule_memory`: HSCAN, HSET and HDEL of one hash, `fields`."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}
        self.reads = 0
        """How often all was read."""

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        return [self._carry_out(*command) for command in commands]

    def _carry_out(self, name: Any, _: Any, *parts: Any) -> Any:
        match name:
            case b"HSCAN":
                self.reads += 1
                return [b"0", [part for field in self.fields.items() for part in field]]
            case b"HSET":
                self.fields.update(zip(parts[::2], parts[1::2], strict=True))
            case b"HDEL":
                self.fields = {field: text for field, text in self.fields.items() if field not in parts}
        return len(parts)

    def close(self) -> None:
        """Nothing to close."""
