"""What a simulated node's store remembers of the Schedules: the few commands that `ScheduleMemory` sends.

It lies in the store, so a restart may lose what was last put there. Neighbour: `hosted_agent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_simulation.protocol.link import ActorGone, Link
from penstock_simulation.protocol.node import SimulatedNode


class RememberedSchedules:
    """A connection. Keeps the port `schedule_memory.Wire`."""

    def __init__(self, node: SimulatedNode, link: Link) -> None:
        self._node = node
        self._link = link

    def exchange(self, commands: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        """A reply for each."""
        if self._link.is_gone:
            raise ActorGone
        return [self._carry_out(*command) for command in commands]

    def close(self) -> None:
        """Nothing to close."""

    def _carry_out(self, name: Any, _: Any, *parts: Any) -> Any:
        kept = self._node.remembered
        if name == b"HGETALL":
            return dict(kept)
        if name == b"HSET":
            self._node.remember(kept | dict(zip(parts[::2], parts[1::2], strict=True)))
        else:
            self._node.remember({key: text for key, text in kept.items() if key not in parts})
        return len(parts)
