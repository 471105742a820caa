"""What an agent's turns have its store remember of the Schedules, whatever befalls the store."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Bounds, NodeStore, OpenStore, Topologies
from penstock_operator.agent.couriers import Couriers
from penstock_operator.agent.deliveries import Deliveries
from penstock_operator.agent.kept_thread import ThreadFaults
from penstock_operator.agent.moving import MoveDriver
from penstock_operator.agent.peers import Peers
from penstock_operator.agent.schedule_feed import ScheduleCache
from penstock_operator.agent.schedule_memory import ScheduleMemory
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import StoreSide
from penstock_operator.agent.store_turns import StoreTurns
from penstock_operator.agent.weighing import Weighing
from penstock_simulation.twins.memory_wire import MemoryWire
from penstock_simulation.twins.no_thread import NoThread
from worlds.schedule_objects import UID, item

NAME = b"words-mid"


class Turns:
    """An agent of store "a" that was told `item(1)` in a list, and has had a turn."""

    def __init__(self) -> None:
        self.kept = MemoryWire()
        self.node = MemoryNode()
        MemoryStore(self.node, "", Bounds()).call(OpenStore("a"))
        self.cache = ScheduleCache()
        peers = Peers("a", "a", str, self._connect)
        deliveries = Deliveries("a", peers, ThreadFaults(), self._clock_s, NoThread)
        side = StoreSide("a", peers.open)
        self._turns = StoreTurns(
            side,
            ScheduleMemory(self.kept),
            peers,
            deliveries,
            Couriers("a", peers, ThreadFaults(), self._clock_s, NoThread),
            MoveDriver("a", peers.open, deliveries.arrived, lambda: None, self._clock_s, thread=NoThread),
            Weighing("a", side.store_of, lambda: 0),
            lambda _: None,
            "Process",
            self._clock_s,
        )
        self.cache.listed([item(1)])
        self.turn()

    def _connect(self, _: str, uid: str) -> NodeStore:
        return MemoryStore(self.node, uid, Bounds())

    def _clock_s(self) -> float:
        return 0.0

    def states(self) -> Collection[str]:
        """Uids of what is in the store."""
        return MemoryStore(self.node, UID, Bounds()).call(Topologies())

    def turn(self, run_id: str = "run") -> None:
        self._turns.see(self.cache.snapshot())
        self._turns.turn(OpenedStore(run_id, 1))


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_a_store_that_lost_what_it_remembered_in_a_restart_is_told_again(turns: Turns) -> None:
    """The agent may have seen nothing of the restart but the new run."""
    remembered = dict(turns.kept.fields)
    assert NAME in remembered
    turns.kept.fields.clear()
    turns.turn(run_id="another run")
    assert turns.kept.fields == remembered


def test_what_another_agent_made_the_store_remember_is_put_right_at_the_next_list(turns: Turns) -> None:
    remembered = dict(turns.kept.fields)
    turns.kept.fields[NAME] = b"{}"
    turns.cache.listed([item(1)])
    turns.turn()
    assert turns.kept.fields == remembered


def test_what_the_store_remembers_is_read_once_for_each_list(turns: Turns) -> None:
    turns.kept.reads = 0
    for _ in range(3):
        turns.turn()
    assert turns.kept.reads == 0


def test_the_store_remembers_a_schedule_that_is_gone_as_long_as_its_state_is_there(turns: Turns) -> None:
    """The operator rebuilds it from there."""
    remembered = dict(turns.kept.fields)
    turns.cache.listed([], [{"metadata": {"uid": UID}}])
    for _ in range(3):
        turns.turn()
    assert turns.kept.fields == remembered
    for _ in range(2):
        turns.cache.listed([], ())
        turns.turn()
    turns.turn()
    assert turns.kept.fields == {}, "its Topology is gone too"


def test_the_store_remembers_the_newer_of_two(turns: Turns) -> None:
    """As after an older state of the cluster was restored."""
    turns.cache.changed(item(3))
    turns.turn()
    remembered = dict(turns.kept.fields)
    turns.cache = ScheduleCache()
    turns.cache.listed([item(2)])
    turns.turn()
    assert turns.kept.fields == remembered


def test_state_of_a_namespace_that_nobody_lists_is_not_given_up(turns: Turns) -> None:
    """It may be served again: that a list lacks it says nothing."""
    elsewhere = item(1, fresh_since=1, applied=())
    elsewhere["metadata"] |= {"namespace": "team-a", "uid": "object-2"}
    turns.cache.listed([elsewhere], None, ["team-a"])
    turns.turn()
    assert b"team-a/words-mid" in turns.kept.fields
    for _ in range(3):
        turns.cache.listed([], [])
        turns.turn()
    assert UID in turns.states()
    assert b"team-a/words-mid" in turns.kept.fields
    for _ in range(3):
        turns.cache.listed([], [], ["team-a"])
        turns.turn()
    assert UID not in turns.states()
    assert b"team-a/words-mid" not in turns.kept.fields
