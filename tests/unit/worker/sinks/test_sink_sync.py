import threading

import pytest

from penstock.errors import PermanentError
from penstock.store.port import Acknowledge
from penstock_worker.sinks.sync import SinkSync


def told_by(sync: SinkSync, count: int) -> list[Acknowledge]:
    """What `take_synced` tells until there are `count`; the pause between two files bounds the turns."""
    found: list[Acknowledge] = []
    pause = threading.Event()
    for _ in range(500):
        found += sync.take_synced()
        if len(found) >= count:
            return found
        pause.wait(0.01)
    raise AssertionError(f"only {found}")


def test_only_what_was_synced_is_told() -> None:
    may_sync = threading.Event()
    synced: list[tuple[str, str]] = []

    def sync(sink: str, shard: str) -> None:
        assert may_sync.wait(5)
        synced.append((sink, shard))

    worker = SinkSync(sync)
    first = Acknowledge("count/0", "totals", 1, b"10")
    worker.submit([first])
    assert worker.take_synced() == []
    assert worker.is_busy
    may_sync.set()
    assert told_by(worker, 1) == [first]
    assert synced == [("totals", "count/0")]
    worker.close()


def test_later_writes_of_a_pair_gather_while_another_sync_runs() -> None:
    may_sync = threading.Event()
    begun = threading.Event()
    syncs: list[str] = []

    def sync(_: str, shard: str) -> None:
        syncs.append(shard)
        begun.set()
        assert may_sync.wait(5)

    worker = SinkSync(sync)
    worker.submit([Acknowledge("count/0", "totals", 1)])
    assert begun.wait(5)
    worker.submit([Acknowledge("count/1", "totals", 1), Acknowledge("count/1", "totals", 2)])
    worker.submit([Acknowledge("count/1", "totals", 3)])
    may_sync.set()
    assert [(a.producer, a.number) for a in told_by(worker, 2)] == [("count/0", 1), ("count/1", 3)]
    assert syncs == ["count/0", "count/1"]
    worker.close()


def test_a_sync_that_fails_is_told_and_acknowledges_nothing() -> None:
    def sync(_: str, __: str) -> None:
        raise PermanentError("the disk is full")

    worker = SinkSync(sync)
    worker.submit([Acknowledge("count/0", "totals", 1)])
    with pytest.raises(PermanentError, match="the disk is full"):
        told_by(worker, 1)
    worker.close()
