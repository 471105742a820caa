"""Commands beside a run, on the store that it has up and on what it left: a real Redis, and no Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.dataflow.on_error import dead_letters_of
from penstock.store import letters
from penstock.store.codec import encode_counts
from penstock.store.letters import Letter, LetterId
from penstock.store.port import Claim, Claimed, Commit, Create, Enroll, Measure, Owner, Publish
from penstock.store.redis.store import RedisStore
from penstock_operator.local.kept.run_record import FORMAT, RunRecord, StateDirectory
from penstock_operator.local.store.private_store import PrivateStore
from scenes.manifest_texts import COUNTING_WITH_LETTERS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
SHARDS = ("count/0", "count/1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state directory with a letter in count/1, whose run is over."""
    directory = StateDirectory(tmp_path / "state")
    directory.lock()
    directory.write_manifest(COUNTING_WITH_LETTERS)
    directory.write(RunRecord(FORMAT, "counting", "uid", "", 1, {}, {"lines": (), "count": SHARDS}, ()))
    server = PrivateStore(directory.folder, "Process")
    server.start()
    store = RedisStore(server.url, "uid")
    workers, places = (("w1", "n1", "localhost", "u1"),), tuple((s, "count-w1", "local") for s in SHARDS)
    store.call(Publish("count", 1, 0, workers, (("count-w1", "w1", 1),), places))
    for shard in SHARDS:
        store.call(Create(shard))
    store.call(Enroll("w1", "u1", 5, 1))
    claimed = store.call(Claim("count/1", Owner("count-w1", "u1/5/1", "ready"), 1))
    assert isinstance(claimed, Claimed)
    letter = Letter(letters.ROWS, ["ash"], [["ash"]], [5], "ValueError: no", 9, "inbox of count/1")
    writes = letters.written("count", LetterId(1, 0), letters.packed(letter))
    counts = encode_counts({dead_letters_of("count"): 1})
    commit = Commit("count/1", claimed.generation, claimed.epoch, 1, 0, 1, counts=counts, state=tuple(writes))
    store.call(commit)
    store.close()
    server.stop()
    directory.unlock()
    return directory.folder


@pytest.fixture
def running(folder: Path) -> Iterator[RedisStore]:
    """The same with its store up."""
    server = PrivateStore(folder, "Process")
    server.start()
    store = RedisStore(server.url, "uid")
    yield store
    store.close()
    server.stop()


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "penstock_operator.cli", *arguments, "--state-dir", str(folder)]
    return subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)


def test_letters_of_a_run_that_is_over_are_listed_and_ordered(folder: Path):
    told = command(folder, "dead-letters", "list", "counting", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["id"] == "count@count/1:1.0"
    told = command(folder, "dead-letters", "replay", "counting", "count@count/1:1.0")
    assert (told.returncode, told.stdout) == (0, "1 will be worked on again by the next run\n")
    told = command(folder, "dead-letters", "drop", "counting", "count@count/1:2.0")
    assert told.returncode == 1
    assert "there is no dead letter count@count/1:2.0" in told.stderr
    server = PrivateStore(folder, "Process")
    server.start()
    store = RedisStore(server.url, "uid")
    (counters,) = store.call(Measure(("count/1",)))
    store.close()
    server.stop()
    assert counters is not None
    assert counters.inbox_entries == 1


def test_an_order_waits_for_the_run_that_has_the_store(folder: Path, running: RedisStore):
    told = command(folder, "dead-letters", "drop", "counting", "--all", "--timeout", "0.2")
    assert told.returncode == 1
    assert "the run has not come to it within 0.2 s; it will" in told.stderr
    told = command(folder, "dead-letters", "show", "counting", "count@count/1:1.0")
    assert told.returncode == 0
    assert "ValueError: no" in told.stdout


def test_state_is_asked_for_by_key(folder: Path, running: RedisStore):
    told = command(folder, "state", "list", "counting", "count")
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
    told = command(folder, "state", "get", "counting", "count", "ash")
    assert told.returncode == 1
    assert "count keeps nothing of ash" in told.stderr
    told = command(folder, "state", "get", "counting", "nobody", "ash")
    assert told.returncode == 2
    assert "there are count" in told.stderr


def test_without_a_run_that_left_something_it_is_said(tmp_path: Path):
    for arguments in (("dead-letters", "list", "counting"), ("state", "list", "counting", "count")):
        told = command(tmp_path / "nothing", *arguments)
        assert told.returncode == 3
        assert "No run has left anything" in told.stderr
