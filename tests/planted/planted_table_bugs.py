"""Faults of routing tables that the simulation must catch, planted in how shards switch, send and receive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from penstock.store.ownership import OwnedShard
from penstock.store.port import Entry, FetchedShard, StateWrite
from penstock_simulation.protocol.table_hand import TableHand
from penstock_simulation.protocol.world import Parts
from penstock_worker.stages.arriving_version import ArrivingVersion
from penstock_worker.stages.control_entries import KeyState, Mark
from penstock_worker.stages.receiving import Given, Receiving
from penstock_worker.stages.routed_stage import RoutedParts
from penstock_worker.stages.switching import Switch, Switching
from penstock_worker.stages.table_shelf import TableShelf
from penstock_worker.stages.work import Rest, Work


class LosesMark(Switching):
    """One of the shards that keys go from or to gets no mark."""

    def work(self, owned: OwnedShard, switch: Switch, *, in_hand: bool, again: bool) -> Work:
        work = super().work(owned, switch, in_hand=in_hand, again=again)
        return structs.replace(work, commit=structs.replace(work.commit, outputs=work.commit.outputs[1:]))


class SwitchesBeforeItsCommit(Switching):
    """A shard routes by the new table one batch before the commit that says so."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        self._early: dict[str, Switch] = {}

    def due(self, owned: OwnedShard) -> Switch | None:
        switch = super().due(owned)
        if switch is None or self._early.get(owned.shard) == switch:
            return switch
        self._early[owned.shard] = switch
        return None

    def route_as(self, owned: OwnedShard) -> bool:
        found = super().route_as(owned)
        early = self._early.get(owned.shard)
        if early is not None and super().due(owned) == early:
            for edge in self._edges:
                if edge.edge.operator == early.operator:
                    edge.route = self._routing(edge, early.table)
        return found


class SwitchesInMemory(Switching):
    """The version that a shard routes by is its task's to know."""

    def work(self, owned: OwnedShard, switch: Switch, *, in_hand: bool, again: bool) -> Work:
        work = super().work(owned, switch, in_hand=in_hand, again=again)
        return structs.replace(work, commit=structs.replace(work.commit, counts=None))


class KnowsFromBefore(TableShelf):
    """A shard that is new begins with the versions that its task knew of before."""

    def look_anew(self) -> None:
        pass


class SendsAtTheFirstMark(Receiving):
    """State goes though some producers still send rows of its key."""

    def _marked(self, owned: OwnedShard, version: ArrivingVersion, entry: Entry, mark: Mark) -> Work | Rest:
        if version.sent < len(version.lost):
            return self._send(owned, version, entry)
        return super()._marked(owned, version, entry, mark)


class StateOvertakes(Receiving):
    """State goes before what was put out of its key has left the outbox."""

    def _is_outbox_free(self, owned: OwnedShard, version: ArrivingVersion) -> bool:
        return True


class HoldsNothingBack(Receiving):
    """Rows of a key whose state has not come are worked on."""

    def _holding(
        self, owned: OwnedShard, version: ArrivingVersion, fetched: FetchedShard, rows: Sequence[Entry]
    ) -> Given | Work:
        return Given(fetched._replace(entries=tuple(rows)))


class PutNoted(ArrivingVersion):
    """That a key's state was put in is noted in memory alone."""

    def put_in(self, packed: bytes) -> Iterator[StateWrite]:
        for _ in super().put_in(packed):
            pass
        return iter(())


class PutsAgain(Receiving):
    """Where rows were held back, the next owner puts the state in once more."""

    arriving = PutNoted

    def _come(
        self,
        owned: OwnedShard,
        version: ArrivingVersion,
        entry: Entry,
        said: KeyState,
        forget: tuple[StateWrite, ...],
    ) -> Work:
        return super()._come(owned, version, entry, said, ())


class HoldsAgain(ArrivingVersion):
    """That rows of an entry are held already is noted in memory alone."""

    def hold_entry(self, number: int) -> Iterator[StateWrite]:
        for _ in super().hold_entry(number):
            pass
        return iter(())


class HeldTwice(Receiving):
    arriving = HoldsAgain


class ForgetsMarks(ArrivingVersion):
    """Marks that came are known in memory alone."""

    def hear(self, producer: str) -> Iterator[StateWrite]:
        for _ in super().hear(producer):
            pass
        return iter(())


class MarksInMemory(Receiving):
    arriving = ForgetsMarks


class OverlappingTables(TableHand):
    """A table follows another one of its operator that is not carried out."""

    def _overlaps(self) -> bool:
        return False


def _with(**parts: Any) -> Parts:
    return Parts(moves=True, tables=True, routed=RoutedParts(**parts))


TABLE_BUGS = {
    "a mark lost": _with(switching=LosesMark),
    "switched before its commit": _with(switching=SwitchesBeforeItsCommit),
    "switched in memory": _with(switching=SwitchesInMemory),
    "a new shard by old versions": _with(shelf=KnowsFromBefore),
    "state sent before all marks": _with(receiving=SendsAtTheFirstMark),
    "state overtakes what its key put out": _with(receiving=StateOvertakes),
    "rows not held back": _with(receiving=HoldsNothingBack),
    "state put in twice": _with(receiving=PutsAgain),
    "rows held twice": _with(receiving=HeldTwice),
    "marks known in memory alone": _with(receiving=MarksInMemory),
    "overlapping tables": Parts(moves=True, tables=True, table_hand=OverlappingTables),
}
