"""A store under load, killed in the middle, and what must be found in it afterwards.

`Load` drives commits and appends from several threads and notes what was acknowledged; every commit
writes its own number everywhere it can (state, position, offset, outputs), so that `check_whole` sees any
call that took effect by half. `slow_fsync` puts an strace before redis-server that delays every fsync and
records how far each file had been synced: what a loss of power may not take.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from penstock.store.keys import Keys
from penstock.store.port import (
    Answer,
    Append,
    Claim,
    Claimed,
    Commit,
    Create,
    Enroll,
    Fetch,
    FetchedShard,
    Output,
    Owner,
    Publish,
    StateSnapshot,
    StateWrite,
    StoreUnreachable,
)
from penstock.store.redis.store import RedisStore

UID = "durable"
_PER_THREAD = 3
_THREADS = 2
_MIDS = tuple(f"mid/{n}" for n in range(_PER_THREAD * _THREADS))
_ENDS = ("end/0", "end/1")
_INCARNATION = "u/1/1"
_NOW_US = 1_700_000_000_000_000
_WAIT_S = 60.0


@dataclass
class Load:
    """What the clients of one run of the store were told."""

    url: str
    commits: dict[str, int] = field(default_factory=dict)
    """shard -> last commit that was answered OK."""
    appends: dict[str, int] = field(default_factory=dict)
    """shard -> last entry that was answered OK."""
    _told: threading.Condition = field(default_factory=threading.Condition)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Make a topology and begin to work in it."""
        store = RedisStore(self.url, UID)
        for operator, shards in (("mid", _MIDS), ("end", _ENDS)):
            assignments = tuple((shard, f"{operator}@w", "local") for shard in shards)
            store.call(
                Publish(operator, 1, 1, (("w", "n", "h", "u"),), ((f"{operator}@w", "w", 1),), assignments)
            )
        store.call(Enroll("w", "u", 1, 1))
        for shard in (*_MIDS, *_ENDS):
            store.call(Create(shard))
        for number in range(_THREADS):
            mine = _MIDS[number * _PER_THREAD : (number + 1) * _PER_THREAD]
            claims = {shard: claim(store, shard, f"task{number}") for shard in mine}
            self._threads.append(threading.Thread(target=self._work, args=(f"task{number}", claims)))
            self._threads.append(threading.Thread(target=self._feed, args=(mine,)))
        store.close()
        for thread in self._threads:
            thread.start()

    def await_commits(self, count: int) -> None:
        """Until so many commits were answered in all."""
        with self._told:
            assert self._told.wait_for(lambda: sum(self.commits.values()) >= count, _WAIT_S)

    def join(self) -> None:
        """Until every client has seen the store gone."""
        for thread in self._threads:
            thread.join(_WAIT_S)
            assert not thread.is_alive()

    def _feed(self, shards: tuple[str, ...]) -> None:
        store = RedisStore(self.url, UID)
        numbers = dict.fromkeys(shards, 0)
        try:
            while True:
                calls = [
                    Append("feeder/0", s, n + 1, b"%d" % (n + 1), 1, _NOW_US) for s, n in numbers.items()
                ]
                for call, answer in zip(calls, store.pipeline(calls), strict=True):
                    assert answer in {Answer.OK, Answer.BUSY}
                    if answer is Answer.OK:
                        numbers[call.target] = self.appends[call.target] = call.number
        except StoreUnreachable:
            store.close()

    def _work(self, ready: str, claims: Mapping[str, Claimed]) -> None:
        store = RedisStore(self.url, UID)
        numbers = dict.fromkeys(claims, 0)
        try:
            while True:
                fetched = store.call(Fetch(ready, 1000, _PER_THREAD))
                commits = [_commit(one, claims[one.shard], numbers[one.shard] + 1) for one in fetched.shards]
                for commit, answer in zip(commits, store.pipeline(commits), strict=True):
                    assert answer is Answer.OK
                    numbers[commit.shard] = commit.number
                    with self._told:
                        self.commits[commit.shard] = commit.number
                        self._told.notify_all()
        except StoreUnreachable:
            store.close()


def claim(store: RedisStore, shard: str, ready: str = "reader") -> Claimed:
    """The shard, for the one worker there is."""
    executor = f"{shard.split('/')[0]}@w"
    claimed = store.call(Claim(shard, Owner(executor, _INCARNATION, ready), 1))
    assert isinstance(claimed, Claimed), claimed
    return claimed


def _commit(fetched: FetchedShard, claimed: Claimed, number: int) -> Commit:
    offset = fetched.entries[-1].number
    told = b"%d" % number
    payload = b"%s %d" % (fetched.shard.encode(), number)
    return Commit(
        shard=fetched.shard,
        generation=claimed.generation,
        epoch=claimed.epoch,
        number=number,
        table_version=0,
        now_us=_NOW_US,
        offset=offset,
        consumed_bytes=sum(len(entry.payload) for entry in fetched.entries),
        consumed_rows=len(fetched.entries),
        position=told,
        state=(
            StateWrite(b"", b"number", told),
            StateWrite(b"", b"offset", b"%d" % offset),
            *[StateWrite(b"log", b"%d" % (number % k), told) for k in (2, 3, 5)],
        ),
        outputs=(
            *[Output(end, payload, 1) for end in _ENDS],
            Output("far/0", payload, 1),
            Output("file", payload, 1, True),
        ),
    )


def next_commit(store: RedisStore, shard: str, last_entry: int) -> Commit:
    """One more commit of a shard, under a new claim and on one more entry."""
    claimed = claim(store, shard, "once")
    number = last_entry + 1
    assert store.call(Append("feeder/0", shard, number, b"%d" % number, 1, _NOW_US)) is Answer.OK
    (fetched,) = store.call(Fetch("once", 1000, 1)).shards
    return _commit(fetched, claimed, claimed.commit + 1)


def check_whole(url: str) -> tuple[dict[str, int], dict[str, int]]:
    """Every call of the load took effect whole or not at all; answers (last commit, last entry) by shard."""
    store = RedisStore(url, UID)
    admin = redis.Redis.from_url(url)
    keys = Keys(UID)
    placed: dict[tuple[str, str], list[int]] = defaultdict(list)
    for end in _ENDS:
        for _, fields in admin.xrange(keys.inbox(end)):
            (payload,) = fields.values()
            producer, number = payload.decode().split()
            placed[producer, end].append(int(number))
    commits, entries = {}, {}
    for shard in _MIDS:
        claimed = claim(store, shard)
        number = claimed.commit
        commits[shard] = number
        state = store.call(StateSnapshot(shard))
        issued = list(range(1, number + 1))
        assert claimed.position == (b"%d" % number if number else b"")
        assert int(state.get((b"", b"number"), b"0")) == number
        assert int(state.get((b"", b"offset"), b"0")) == claimed.offset
        if number:
            assert all(int(state[b"log", b"%d" % (number % k)]) == number for k in (2, 3, 5))
        for end in _ENDS:
            assert placed[shard, end] == issued
        for target in ("far/0", "file"):
            waiting = admin.xrange(keys.outbox(shard, target))
            assert [int(id_.split(b"-")[0]) for id_, _ in waiting] == issued
        assert (claimed.external["file"].issued if number else 0) == number
        held = [int(payload) for _, fields in admin.xrange(keys.inbox(shard)) for payload in fields.values()]
        # Some that are worked off may still be there, see decision 0001.
        inbox = [entry for entry in held if entry > claimed.offset]
        assert len(held) - len(inbox) < 16
        last = inbox[-1] if inbox else claimed.offset
        assert inbox == list(range(claimed.offset + 1, last + 1))
        entries[shard] = last
    admin.close()
    store.close()
    return commits, entries


def assert_kept(load: Load, found: tuple[dict[str, int], dict[str, int]]) -> None:
    """Everything acknowledged is there, and nothing beyond what was on its way."""
    for told, kept in zip((load.commits, load.appends), found, strict=True):
        off = {s: (n, kept[s]) for s, n in told.items() if not n <= kept[s] <= n + 1}
        assert not off, f"shard: (told, found) {off}"


class SyncedFiles:
    """What strace saw of a server's append-only files."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def await_end(self) -> None:
        """Until the log is complete: the server was killed."""
        deadline_s = time.monotonic() + _WAIT_S
        while "killed by SIGKILL" not in self._log.read_text():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)

    def sizes(self) -> dict[str, tuple[int, int]]:
        """File name -> (bytes synced, bytes written) of the append-only file's parts."""
        written: dict[str, int] = defaultdict(int)
        synced: dict[str, int] = defaultdict(int)
        begun: dict[str, tuple[str, str]] = {}
        for line in self._log.read_text().splitlines():
            thread, text = line.split(maxsplit=1)
            if call := re.match(r"(write|fdatasync|fsync)\(\d+<([^>]*\.incr\.aof)>", text):
                begun[thread] = call[1], Path(call[2]).name
            elif not text.startswith("<... "):
                begun.pop(thread, None)
            if thread in begun and (result := re.search(r"\) += (\d+)", text)):
                kind, name = begun.pop(thread)
                if kind == "write":
                    written[name] += int(result[1])
                else:
                    synced[name] = written[name]
        return {name: (synced[name], size) for name, size in written.items()}

    @property
    def slowed(self) -> int:
        """How many syncs were delayed."""
        return self._log.read_text().count("(DELAYED)")


@contextmanager
def slow_fsync(folder: Path, delay_ms: int) -> Iterator[SyncedFiles]:
    """While this lasts, the redis-server on PATH is one whose every fsync is so much slower."""
    server = shutil.which("redis-server")
    assert server is not None
    strace = shutil.which("strace")
    assert strace is not None, "strace is needed: apt-get install strace"
    folder.mkdir()
    log = folder / "strace.log"
    wrapper = folder / "redis-server"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version) exec {server} --version;; esac\n'
        f"exec {strace} -D -f --seccomp-bpf -qq -y -s 0 -o {log} -e trace=write,fdatasync,fsync "
        f'-e inject=fdatasync,fsync:delay_enter={delay_ms * 1000} {server} "$@"\n'
    )
    wrapper.chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}{os.pathsep}{path}"
    try:
        yield SyncedFiles(log)
    finally:
        os.environ["PATH"] = path


def copy_after_loss_of_power(state: Path, copy: Path, files: SyncedFiles, torn: float) -> None:
    """The directory as a loss of power leaves it: with a share `torn` of what was written but not synced."""
    shutil.copytree(state, copy, ignore=shutil.ignore_patterns("*.sock", "lock"))
    for name, (synced, written) in files.sizes().items():
        for part in copy.rglob(name):
            os.truncate(part, synced + int((written - synced) * torn))
