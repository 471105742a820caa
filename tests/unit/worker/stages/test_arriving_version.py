"""What a shard notes of a table's version is what its next owner begins with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.dataflow.routing_table import KeyMove, RoutingTable
from penstock.store.port import StateWrite
from penstock_worker.stages.arriving_version import HELD_ROWS, VERSION_NOTES, ArrivingVersion

A, B, C = b"\x91\x01", b"\x91\x02", b"\x91\x03"
TABLE = RoutingTable(3, (), (KeyMove(A, 0, 1), KeyMove(B, 1, 2), KeyMove(C, 0, 1)), ("src/0", "src/1"))


def key_of(packed: bytes) -> tuple[int, ...]:
    return tuple(packed[1:])


class Notes:
    """The collection of a shard, as commits write it."""

    def __init__(self) -> None:
        self.fields: dict[bytes, bytes] = {}

    def write(self, writes: Iterable[StateWrite]) -> None:
        for write in writes:
            if write.collection != VERSION_NOTES or write.field is None:
                continue
            if write.value is None:
                self.fields.pop(write.field, None)
            else:
                self.fields[write.field] = write.value

    def next_owners(self) -> ArrivingVersion:
        return ArrivingVersion(TABLE, 1, key_of, self.fields.items())


def states(version: ArrivingVersion) -> Iterator[object]:
    yield from (version.awaited, version.sent, version.held_entry, version.put, version.is_over)
    yield from (version.first_held(key) for key in (A, B, C))
    yield from (version.is_last_mark(name) for name in ("src/0", "src/1"))


def test_each_step_is_known_to_the_next_owner() -> None:
    version, notes = ArrivingVersion(TABLE, 1, key_of), Notes()
    assert [move.key for move in version.lost] == [B]
    assert version.awaited == {(1,): A, (3,): C}
    steps = [
        lambda: version.hear("src/1"),
        lambda: version.hold(A, b"rows"),
        lambda: version.hold_entry(7),
        lambda: version.hold(A, b"more"),
        lambda: version.hold_entry(0),
        lambda: version.send(1),
        lambda: version.put_in(A),
        lambda: version.worked(A, 0),
        lambda: version.come(A),
        lambda: version.come(C),
    ]
    for step in steps:
        notes.write(step())
        assert list(states(notes.next_owners())) == list(states(version))
    assert version.is_over


def test_a_producer_that_the_table_does_not_name_is_not_waited_for_and_not_noted() -> None:
    version = ArrivingVersion(TABLE, 1, key_of)
    assert list(version.hear("src/9")) == []
    assert not version.is_last_mark("src/9")
    assert list(version.hear("src/0"))
    assert version.is_last_mark("src/1")


def test_what_is_held_goes_when_its_key_has_come() -> None:
    version = ArrivingVersion(TABLE, 1, key_of)
    list(version.hold(A, b"rows"))
    assert version.first_held(A) == 0
    assert version.is_last_held(A)
    assert StateWrite(HELD_ROWS + A, None, None) in list(version.come(A))
    assert version.first_held(A) is None
