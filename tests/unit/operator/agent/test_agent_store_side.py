"""What a turn of the agent asks its store, in how few round trips, on the store's twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.dataflow.routing_table import digest_of
from penstock.dataflow.source import ADDED
from penstock.schedule.record import AppliedPlace, TablePlace
from penstock.store.lives import LIFE
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.moving.mover import MoveKind
from penstock.store.port import (
    Answer,
    Bounds,
    Create,
    OpenStore,
    PairNames,
    PutPairs,
    PutTable,
    ReadTable,
    Request,
    ShardStatus,
    TableVersions,
    Topologies,
    UnreadableState,
)
from penstock_operator.agent.applied_status import applied_entry
from penstock_operator.agent.kept_stores import KEPT_S
from penstock_operator.agent.schedule_feed import ScheduleCache, SeenSchedule
from penstock_operator.agent.store_keeper import OpenedStore
from penstock_operator.agent.store_side import (
    COUNTS_S,
    LOST_AFTER_S,
    STRANGERS_S,
    UNREADABLE_S,
    DueMove,
    StoreSide,
    Turn,
)
from scenes.task_scene import Between
from worlds.schedule_objects import UID, item

NAME = "words-mid"
OPENED = OpenedStore("run", 1)
EARLIER = applied_entry(AppliedPlace("a", 1, 1))


class Asked(Between):
    """Keeps the calls of each round trip, by name."""

    def __init__(
        self,
        store: MemoryStore,
        sent: list[list[str]],
        name: str,
        lines: list[str],
        *,
        is_readable: bool,
        is_busy: Callable[[], bool],
    ) -> None:
        super().__init__(store)
        self._sent = sent
        self._is_readable = is_readable
        self._is_busy = is_busy
        self._name, self._lines = name, lines
        self._lines.append(name)

    def close(self) -> None:
        self._lines.remove(self._name)

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self._sent.append([type(call).__name__ for call in calls])
        assert len(self._sent) < 1000, "a turn has an end"
        if self._is_busy() and isinstance(calls[0], Create):
            return [Answer.BUSY] * len(calls)
        if not self._is_readable:
            raise UnreadableState("its workers wrote over it")
        return super().pipeline(calls)


class Side:
    """The side of store "a", of which the schedules say that it holds mid/0."""

    def __init__(self) -> None:
        self.nodes = {name: MemoryNode() for name in "ab"}
        self.node = self.nodes["a"]
        self.now_s = 0.0
        self.store = MemoryStore(self.node, UID, Bounds())
        self.store.call(OpenStore("a"))
        self.store.call(Create("mid/0"))
        self.sent: list[list[str]] = []
        self.open: list[str] = []
        """Stores to which there is a connection, each as often as there is one."""
        self.remembered = {UID, "state-2"}
        """Topologies whose Schedules the store remembers."""
        self.never_cleared: set[str] = set()
        """Topologies of whose shards something from before is left, however much of it is cleared."""
        self.unreadable: set[str] = set()
        """Topologies of which no store can read anything."""
        self.cache = ScheduleCache()
        self.users: set[str] = set()
        self._side = StoreSide(
            "a",
            self._open_store,
            lambda uid: self.sent.append(["end user", uid]),
            lambda: self.users,
        )

    def _open_store(self, store: str, uid: str) -> Asked:
        twin = MemoryStore(self.nodes[store], uid, Bounds())
        return Asked(
            twin,
            self.sent,
            store,
            self.open,
            is_readable=uid not in self.unreadable,
            is_busy=lambda: uid in self.never_cleared,
        )

    def confirm(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        self._side.confirmed(seen, applied, self.cache.snapshot().listing)

    def turn(self, *items: dict[str, Any]) -> Turn:
        self.sent.clear()
        for one in items:
            self.cache.changed(one)
        return self._side.turn(self.cache.snapshot(), OPENED, self.now_s, frozenset(self.remembered))


@pytest.fixture
def side() -> Side:
    side = Side()
    side.cache.listed([item(1)])
    side.turn()
    return side


def test_what_has_to_move_is_known_in_the_round_trip_that_publishes(side: Side) -> None:
    turn = side.turn(item(2, homes={"0": "b", "1": "b"}))
    assert turn.moves == (DueMove(UID, "mid/0", MoveKind.MOVE, "b", 2),)
    assert side.sent == [["Publish", "Measure"]]


def test_what_has_to_move_is_known_again_after_lists_that_lacked_it_or_were_old(side: Side) -> None:
    """It is published already: nothing is left to do by which it would be noticed."""
    newest = item(2, homes={"0": "b", "1": "b"})
    side.turn(newest)
    side.cache.listed([], ())
    side.cache.listed([item(1), item(1, name="words-end", operator="end")])
    assert side.turn().moves == ()
    assert side.turn(newest).moves == (DueMove(UID, "mid/0", MoveKind.MOVE, "b", 2),)


def test_a_partition_that_is_added_to_a_source_is_made_as_such_and_the_first_ones_are_not(side: Side) -> None:
    one = item(3, name="words-in", uid="object-2", operator="in", homes={"t/0": "a"}, fresh_since=2)
    added = {"executor": "in-a", "home": "a", "freshSince": 3, "added": True, "names": ["t/1"]}
    one["spec"] |= {"source": True, "shards": [*one["spec"]["shards"], added]}
    side.turn(one)
    made = side.node.topologies[UID].shards
    assert {shard: record.position for shard, record in made.items() if record.source} == {
        "in/t/0": b"", "in/t/1": ADDED,
    }  # fmt: skip


def test_a_shard_that_lives_once_more_is_made_over_what_an_earlier_stay_left(side: Side) -> None:
    here = side.node.topologies[UID].shards
    here["mid/0"].status = ShardStatus.MOVED
    here["mid/0"].state = {b"%d" % n: {b"f": b""} for n in range(Bounds().chunk_entries_max + 1)}
    one = item(2, homes={"0": "a"}, fresh_since=2)
    one["spec"]["shards"][0]["life"] = 3
    turn = side.turn(one)
    assert here["mid/0"].status is ShardStatus.ACTIVE
    assert here["mid/0"].epoch == 3 * LIFE
    assert sum(calls == ["Create"] for calls in side.sent) > 1, "it goes in several calls"
    assert turn.reports[NAME][1].version == 2


def test_who_is_gone_is_looked_for_in_the_turn_after(side: Side) -> None:
    side.turn(item(2))
    assert ["TopologiesAmong"] not in side.sent
    assert not side.turn().must_list
    assert ["TopologiesAmong"] in side.sent
    assert side.turn().retracted == ()
    side.cache.listed([], ())
    assert side.turn().must_list
    side.cache.listed([], ())
    assert side.turn().retracted == (UID,)


def test_records_of_a_topology_with_many_shards_are_asked_for_in_parts(side: Side) -> None:
    turn = side.turn(item(2, homes={str(number): "b" for number in range(600)}))
    assert [move.shard for move in turn.moves] == ["mid/0"]
    assert side.sent[0] == ["Publish"]
    assert side.sent.count(["Measure"]) == 2


def test_a_topology_is_alive_while_it_has_schedules_or_something_in_the_store(side: Side) -> None:
    assert side.turn().alive == {UID}
    side.cache.listed([], ())
    assert side.turn().alive == {UID}, "its state is there still"
    side.cache.listed([], ())
    assert side.turn().retracted == (UID,)
    assert side.turn().alive == frozenset()


def test_a_topology_that_left_nothing_here_is_not_alive_once_its_schedules_are_gone(side: Side) -> None:
    other = item(1, name="other-mid", uid="object-2", homes={})
    other["spec"]["topologyUid"] = other["metadata"]["labels"]["penstock.dev/topology-uid"] = "state-2"
    side.node.topologies.clear()
    side.cache.listed([other])
    side.turn()
    side.node.topologies.clear()
    side.cache.listed([], ())
    assert side.turn().alive == frozenset()


def test_another_store_is_connected_to_until_nothing_was_missing_here_for_long(side: Side) -> None:
    side.turn(item(2, homes={"0": "a", "5": "a"}))
    side.turn()
    assert "b" in side.open
    side.store.call(Create("mid/5"))
    side.now_s = KEPT_S - 1
    side.turn()
    assert "b" in side.open, "the next move asks there at once"
    side.now_s = KEPT_S
    side.turn()
    assert set(side.open) == {"a"}
    side.cache.listed([], ())
    side.turn()
    side.cache.listed([], ())
    assert side.turn().retracted == (UID,)
    assert side.open == ["a"], "the one for what is asked of a store as a whole"


def test_a_report_that_somebody_has_overwritten_is_made_again(side: Side) -> None:
    """An earlier agent of the node, taken for dead, may write what it found out long ago."""
    (told,) = side.turn(item(2)).reports.values()
    side.confirm(*told)
    assert side.turn().reports == {}
    assert side.turn(item(2, applied=(applied_entry(told[1]),))).reports == {}
    assert side.turn(item(2, applied=(EARLIER,))).reports.keys() == {NAME}


def test_a_report_that_was_overwritten_before_it_was_told_is_made_again_after_two_listings(
    side: Side,
) -> None:
    """The first of them may have begun before the report."""
    (told,) = side.turn(item(2)).reports.values()
    side.confirm(*told)
    overwritten = item(2, applied=(EARLIER,))
    assert side.turn(overwritten).reports == {}
    side.cache.listed([overwritten])
    assert side.turn().reports == {}
    side.cache.listed([overwritten])
    assert side.turn().reports.keys() == {NAME}


def test_a_shard_that_was_elsewhere_at_the_look_before_is_not_lost_because_it_is_nowhere_now(
    side: Side,
) -> None:
    """A move's steps are not seen at one moment, and looks may be far apart."""
    here, there = item(2, homes={"0": "a", "1": "a"}), MemoryStore(side.nodes["b"], UID, Bounds())
    there.call(OpenStore("b"))
    there.call(Create("mid/1"))
    assert side.turn(here).reports[NAME][1].lost_shards == 0
    side.nodes["b"].topologies.clear()
    side.now_s = 60.0
    assert side.turn().reports[NAME][1].lost_shards == 0
    side.now_s += LOST_AFTER_S
    assert side.turn().reports[NAME][1].lost_shards == 1


def other(version: int, **fields: Any) -> dict[str, Any]:
    """A Schedule of another topology."""
    one = item(version, name="other-mid", uid="object-2", **fields)
    one["spec"]["topologyUid"] = one["metadata"]["labels"]["penstock.dev/topology-uid"] = "state-2"
    return one


def test_a_topology_that_cannot_be_read_keeps_no_other_one_back(side: Side) -> None:
    side.unreadable = {"state-2"}
    side.cache.listed([other(2), item(2, homes={"0": "b", "1": "b"})])
    turn = side.turn()
    assert turn.reports.keys() == {NAME}
    assert turn.moves == (DueMove(UID, "mid/0", MoveKind.MOVE, "b", 2),)


def test_a_topology_that_cannot_be_read_is_tried_again_after_a_while_and_not_before(side: Side) -> None:
    side.unreadable = {"state-2"}
    side.turn(other(2))
    assert ["Publish", "Measure"] in side.sent
    side.now_s += UNREADABLE_S - 1
    side.turn()
    assert ["Publish", "Measure"] not in side.sent
    side.now_s += 1
    side.turn()
    assert ["Publish", "Measure"] in side.sent


def test_one_that_cannot_be_read_does_not_keep_another_one_from_being_removed(side: Side) -> None:
    MemoryStore(side.node, "aa-first", Bounds()).call(Create("mid/0"))
    side.remembered.add("aa-first")
    side.unreadable = {"aa-first"}
    side.cache.listed([], ())
    side.turn()
    side.cache.listed([], ())
    assert side.turn().retracted == (UID,)


def named(side: Side, *uids: str) -> None:
    """Workers add these to the store's set of topologies, or another store has brought something of them."""
    for uid in uids:
        side.node.topology(uid).listed = True


def test_made_up_topologies_are_met_one_at_a_time_and_no_turn_is_longer_for_them(side: Side) -> None:
    named(side, *(f"made-up-{number}" for number in range(900)))
    gone: list[str] = []
    for _ in range(10):
        side.now_s += STRANGERS_S / 4
        side.cache.listed([item(1)], ())
        gone += side.turn().retracted
        assert len(side.sent) <= 8
    assert 0 < len(gone) <= 3
    assert all(uid.startswith("made-up-") for uid in gone)


def test_where_more_topologies_are_named_than_there_can_be_all_but_the_known_ones_are_forgotten(
    side: Side,
) -> None:
    named(side, *(f"made-up-{number}" for number in range(1001)))
    side.now_s += STRANGERS_S
    assert side.turn().retracted == ()
    assert side.store.call(Topologies()) == [UID]


def test_what_another_store_brought_of_a_topology_that_was_never_seen_here_is_removed_too(side: Side) -> None:
    MemoryStore(side.node, "brought", Bounds()).call(Create("mid/0"))
    side.now_s += STRANGERS_S
    side.cache.listed([item(1)], ())
    assert side.turn().must_list
    side.cache.listed([item(1)], ())
    assert side.turn().retracted == ("brought",)


def test_who_names_a_topology_that_lives_takes_nothing_away(side: Side) -> None:
    named(side, "living")
    for _ in range(8):
        side.now_s += STRANGERS_S / 2
        side.cache.listed([item(1)], [{"metadata": {"uid": "living"}}])
        assert side.turn().retracted == ()


def test_who_is_gone_has_no_user_any_more_before_anything_of_it_is_removed(side: Side) -> None:
    for _ in range(2):
        side.cache.listed([], ())
        side.turn()
    assert side.sent[-2:] == [["end user", UID], ["Retract"]]


def test_what_is_never_cleared_of_one_topology_keeps_no_other_one_back(side: Side) -> None:
    side.never_cleared = {"state-2"}
    side.cache.listed([other(2, homes={"7": "a"}, fresh_since=2), item(2)])
    turn = side.turn()
    assert turn.reports.keys() == {NAME}
    assert side.sent.count(["Create"]) == 50
    side.never_cleared = set()
    assert "other-mid" in side.turn().reports


def test_what_another_store_brought_of_a_namespace_that_is_not_listed_here_yet_stays(side: Side) -> None:
    """The list of namespaces comes to agents in minutes; the operator has told the topology's user before."""
    MemoryStore(side.node, "brought", Bounds()).call(Create("mid/0"))
    side.users = {"brought"}
    for _ in range(8):
        side.now_s += STRANGERS_S / 2
        side.cache.listed([item(1)], ())
        assert side.turn().retracted == ()
    side.users = set()
    gone: list[str] = []
    for _ in range(8):
        side.now_s += STRANGERS_S / 2
        side.cache.listed([item(1)], ())
        gone += side.turn().retracted
    assert gone == ["brought"]


def table(version: int) -> TablePlace:
    content = b"content %d" % version
    return TablePlace(version, digest_of(content), content)


def test_a_routing_table_is_there_before_its_schedule_and_the_one_before_the_last_goes(side: Side) -> None:
    for version in (1, 2, 3):
        side.turn(item(1 + version, table=table(version)))
        put = [number for number, calls in enumerate(side.sent) if "PutTable" in calls]
        published = [number for number, calls in enumerate(side.sent) if "Publish" in calls]
        assert len(put) == len(published) == 1
        assert put < published
    assert side.store.call(TableVersions("mid")) == (2, 3)
    assert side.store.call(ReadTable("mid", 3)) == b"content 3"


def test_shards_are_born_where_all_tables_of_their_topology_are(side: Side) -> None:
    other = {"name": "words-end", "uid": "object-2", "operator": "end"}
    side.turn(item(1, table=table(5), homes={"0": "a"}, fresh_since=1, **other))
    calls = [call for calls in side.sent for call in calls]
    assert calls.index("PutTable") < calls.index("Create")


def test_a_table_is_put_once_for_each_start_of_the_store(side: Side) -> None:
    side.turn(item(2, table=table(1)))
    side.turn(item(3, table=table(1)))
    assert not any("PutTable" in calls for calls in side.sent)


def test_a_store_that_was_away_forgets_all_tables_that_nobody_goes_by(side: Side) -> None:
    for version in (1, 2, 3):
        side.store.call(PutTable("mid", version, b"content"))
    side.turn(item(2, table=table(9)))
    assert side.store.call(TableVersions("mid")) == (9,)


def test_counted_pairs_of_tasks_that_are_gone_are_dropped_now_and_then(side: Side) -> None:
    for name in ("mid:end:mid-a:0", "mid:end:mid-a:1", "mid:end:gone:0"):
        side.store.call(PutPairs(name, b"row"))
    side.turn()
    assert len(side.store.call(PairNames())) == 3
    side.now_s += COUNTS_S
    side.turn()
    assert side.store.call(PairNames()) == ("mid:end:mid-a:0",)
    side.turn()
    assert ["PairNames"] not in side.sent


def test_a_store_without_room_for_a_table_publishes_what_runs_and_takes_it_later(side: Side) -> None:
    side.node.memory_bytes_max = -1
    other = {"name": "words-end", "uid": "object-2", "operator": "end"}
    side.turn(item(2, table=table(1)), item(1, homes={"0": "a"}, fresh_since=1, **other))
    asked = [call for calls in side.sent for call in calls]
    assert "Publish" in asked
    assert "Create" not in asked, "it would begin without the table"
    assert side.store.call(TableVersions("mid")) == ()
    side.node.memory_bytes_max = None
    side.turn()
    assert side.store.call(TableVersions("mid")) == (1,)
    assert "Create" in [call for calls in side.sent for call in calls]
