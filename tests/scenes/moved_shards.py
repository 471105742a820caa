"""Shards on their way between two stores, for the suites of moves: filled, departed, brought to their end."""

from __future__ import annotations

from penstock.store.port import (
    Answer,
    NodeStore,
    StateWrite,
    TimerWrite,
)
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Installed,
    Move,
)
from scenes.move_scene import MoveScene
from scenes.store_scenario import out

X = "mid/0"


NOWHERE = Installed(0, b"", complete=False)


def clear(store: NodeStore, call: Drop | Discard) -> int:
    """Call until nothing is left; answers how often there was more."""
    for calls in range(100):
        answer = store.call(call)
        if answer is not Answer.MORE:
            assert answer is Answer.OK
            return calls
    raise AssertionError("there is always more")


def departed(moving: MoveScene, shard: str = X) -> Move:
    """A move up to where its source has given the shard up."""
    move = moving.freeze(shard)
    moving.copy(shard, move)
    assert moving.a.store.call(Depart(shard, move)) is Answer.OK
    return move


def finish(moving: MoveScene, move: Move, shard: str = X) -> None:
    """The rest of a move from s1 to s2, and a claim."""
    assert moving.b.store.call(Activate(shard, move)) is Answer.OK
    clear(moving.a.store, Drop(shard, move))
    moving.claim(shard)


def fill(moving: MoveScene) -> None:
    """Something of everything that a shard can have."""
    a = moving.a
    a.fill(X, 10, 20, 30)
    entries = a.fetch_one(X)
    a.commit(
        X,
        out("end/0", b"local"),
        *[out("far/0", b"%d" % n) for n in range(4)],
        *[out("files", b"file %d" % n, external=True) for n in range(2)],
        entries=entries[:1],
        state=[StateWrite(b"", b"v%d" % n, b"%d" % n) for n in range(9)]
        + [StateWrite(b"c%d" % n, b"f%d" % m, b"x") for n in range(5) for m in range(n + 1)],
        timers=[TimerWrite(b"t%d" % n, 100 + n) for n in range(6)],
    )
    assert a.acknowledge(X, "files", 1, b"at 6") is Answer.OK
    assert a.acknowledge(X, "far/0", 2) is Answer.OK
