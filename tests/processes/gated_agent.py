"""The node agent with a gate at each durable step of a move: `python -m processes.gated_agent`, set up as it.

The product's agent throughout; only its movers' connections look into the folder PENSTOCK_GATE. While there
is a file `hold` there (a `Gate` as JSON), the mover that takes this shard to this step stops there and says
so in a file `held`; it goes on when `hold` is gone. So a step that lasts a millisecond lasts as long as a
test needs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from penstock.store.port import Answer, NodeStore, Request
from penstock.store.port.moves import Activate, Depart, Drop, Freeze, NextRound, Precopy
from penstock_operator.agent import node_agent
from penstock_operator.agent.kept_stores import OpenStore
from penstock_operator.agent.main import run_agent
from penstock_operator.agent.moving import MoveDriver

A = TypeVar("A")


class Step(StrEnum):
    """What a move has done that outlives its driver."""

    PRECOPY = "pre-copy begun"
    ROUND = "a round copied"
    FROZEN = "frozen"
    COPIED = "rest copied"
    DEPARTED = "departed"
    ACTIVATED = "activated"
    DROPPED = "dropped"


_ENDS_BEFORE = {NextRound: Step.ROUND, Depart: Step.COPIED}
"""The call that follows a step, where the step is several calls."""
_ENDS_WITH = {
    Precopy: Step.PRECOPY,
    Freeze: Step.FROZEN,
    Depart: Step.DEPARTED,
    Activate: Step.ACTIVATED,
    Drop: Step.DROPPED,
}


class Gate(msgspec.Struct):
    shard: str
    step: str


class GatedStore(NodeStore):
    """A mover's connection."""

    def __init__(self, store: NodeStore, folder: Path) -> None:
        self._store = store
        self._hold = folder / "hold"
        self._held = folder / "held"

    def call(self, call: Request[A]) -> A:
        if not (isinstance(call, NextRound) and not call.resume):
            self._pass(_ENDS_BEFORE.get(type(call)), call)
        answer = self._store.call(call)
        if not (isinstance(answer, Answer) and answer not in {Answer.OK, Answer.DONE}):
            self._pass(_ENDS_WITH.get(type(call)), call)
        return answer

    def _pass(self, step: Step | None, call: Request[Any]) -> None:
        if step is None:
            return
        try:
            gate = msgspec.json.decode(self._hold.read_bytes(), type=Gate)
        except FileNotFoundError:
            return
        if (gate.shard, gate.step) == (getattr(call, "shard", ""), step):
            self._held.touch()
            while self._hold.exists():
                time.sleep(0.002)

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        """One by one: a step may be any of them."""
        return [self.call(call) for call in calls]

    def post(self, calls: Sequence[Request[Any]]) -> Callable[[], list[Any]]:
        return self._store.post(calls)

    def close(self) -> None:
        self._store.close()


class GatedMoveDriver(MoveDriver):
    def __init__(self, store_id: str, open_store: OpenStore, *told: Any, **more: Any) -> None:
        folder = Path(os.environ["PENSTOCK_GATE"])

        def gated(there: str, uid: str) -> GatedStore:
            return GatedStore(open_store(there, uid), folder)

        super().__init__(store_id, gated, *told, **more)


if __name__ == "__main__":
    node_agent.MoveDriver = GatedMoveDriver  # type: ignore[misc]
    sys.exit(run_agent())
