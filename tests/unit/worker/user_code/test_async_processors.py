"""Async processors: calls of several keys at once, whatever their shards, one a key, each on its own state,
and all of them done before anything is committed."""

# ruff: noqa: N802, N803 - pyspark's own names

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from penstock.manifest.faults import InvalidManifest
from penstock.testing import OperatorFailed, ProcessorTest, TopologyTest

INPUT, OUTPUT = "word string, n bigint", "word string, n bigint"
WORDS = [f"w{n}" for n in range(40)]


class Plain(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n bigint")
        self.seen = handle.getListState("seen", "n bigint")

    def close(self) -> None:
        pass


class Asking(Plain):
    """Waits the longer, the earlier its key comes; works on its state before, between and behind."""

    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0
    called: ClassVar[list[str]] = []

    async def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> list[Row]:
        cls = type(self)
        cls.under_way += 1
        cls.most = max(cls.most, cls.under_way)
        cls.called.append(key[0])
        before = (self.total.get() or (0,))[0]
        numbers = [row.n for row in rows]
        for n in numbers:
            self.seen.appendValue((n,))
            await asyncio.sleep(0)
        for _ in range(50 - len(cls.called) % 50):
            await asyncio.sleep(0)
        assert (self.total.get() or (0,))[0] == before
        self.total.update((before + sum(numbers),))
        cls.under_way -= 1
        assert [n for (n,) in self.seen.get()][-len(numbers) :] == numbers
        return [Row(word=key[0], n=n) for n in numbers]


def asking(**calls: Any) -> ProcessorTest:
    Asking.under_way = Asking.most = 0
    Asking.called = []
    return ProcessorTest(Asking, input=INPUT, key="word", output=OUTPUT, calls=calls or None)


def test_calls_of_different_keys_wait_together_whatever_their_shards_and_no_more_than_may() -> None:
    with asking(concurrent=7) as test:
        test.feed([(word, 1) for word in WORDS])
        assert sorted(row["word"] for row in test.take()) == sorted(WORDS)
        assert sorted(Asking.called) == sorted(WORDS)
        assert Asking.most == 7


def test_rows_of_a_key_come_in_one_call_in_their_order_and_the_next_call_sees_what_it_left() -> None:
    with asking(concurrent=3) as test:
        for begin in (0, 100):
            test.feed([(word, begin + n) for n in range(5) for word in WORDS[:6]])
        came: dict[str, list[int]] = {}
        for row in test.take():
            came.setdefault(row["word"], []).append(row["n"])
        wanted = [*range(5), *range(100, 105)]
        assert came == dict.fromkeys(WORDS[:6], wanted)
        assert test.state("w3") == {"total": sum(wanted), "seen": wanted}
        assert Counter(Asking.called) == dict.fromkeys(WORDS[:6], 2)


class Yielding(Plain):
    """An async generator, which works on state of the key between the rows that it puts out."""

    async def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> AsyncIterator[pd.DataFrame]:
        for frame in rows:
            for n in frame["n"]:
                await asyncio.sleep(0)
                self.total.update(((self.total.get() or (0,))[0] + int(n),))
                yield pd.DataFrame({"word": [key[0]], "n": [self.total.get()[0]]})


def test_it_may_be_an_async_generator_in_pandas() -> None:
    with ProcessorTest(Yielding, input=INPUT, key="word", output=OUTPUT) as test:
        test.feed([("a", 1), ("b", 5), ("a", 2)])
        assert sorted((row["word"], row["n"]) for row in test.take()) == [("a", 1), ("a", 3), ("b", 5)]


class Failing(Plain):
    """Fails once for each key, with half of its work done; never comes back for a 13."""

    failed: ClassVar[set[str]] = set()

    async def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> list[Row]:
        total = (self.total.get() or (0,))[0]
        for row in rows:
            total += row.n
            self.total.update((total,))
            self.seen.appendValue((row.n,))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000 * row.n)
        await asyncio.sleep(0)
        if total == 13:
            await asyncio.Event().wait()
        if key[0] not in self.failed:
            self.failed.add(key[0])
            raise ConnectionError("away for a moment")
        return [Row(word=key[0], n=total)]

    async def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> AsyncIterator[Row]:
        await asyncio.sleep(0)
        assert self.total.get() is not None
        yield Row(word=key[0], n=-(self.total.get()[0]))


def failing(**calls: Any) -> ProcessorTest:
    Failing.failed = set()
    return ProcessorTest(
        Failing, input=INPUT, key="word", output=OUTPUT, time_mode="ProcessingTime", calls=calls
    )


def test_a_call_that_is_made_again_finds_the_state_as_it_was() -> None:
    with failing(retries=1, retryAfter="1ms") as test:
        begin = test.now
        test.feed([(word, n) for n in (2, 3) for word in WORDS[:20]])
        assert sorted((row["word"], row["n"]) for row in test.take()) == sorted((w, 5) for w in WORDS[:20])
        for word in WORDS[:20]:
            assert test.state(word) == {"total": 5, "seen": [2, 3]}
            assert test.timers(word) == [begin + timedelta(seconds=2), begin + timedelta(seconds=3)]
        test.advance(seconds=2.5)
        assert sorted((row["word"], row["n"]) for row in test.take()) == sorted((w, -5) for w in WORDS[:20])


def test_a_call_that_fails_for_the_last_time_ends_the_operator_with_its_key() -> None:
    with pytest.raises(ConnectionError, match="away for a moment") as raised, failing() as test:
        test.feed([(word, 1) for word in WORDS[:20]])
    assert "handleInputRows raised for key" in "".join(raised.value.__notes__)


def test_a_call_that_takes_too_long_is_cancelled() -> None:
    with failing(timeout="30ms") as test:
        Failing.failed = {"a"}
        with pytest.raises(
            OperatorFailed, match=r"for key tuple .'a',.\nTimeoutError: was not done within 30 ms"
        ):
            test.feed([("a", 13)])


class Alarms(Plain):
    """Two timers a key, some at the same time as those of others. A timer takes the longer, the earlier it is
    called for; one that is due for the key of which a row came waits for it."""

    under_way: ClassVar[int] = 0
    most: ClassVar[int] = 0
    fails: ClassVar[str] = ""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.total.update((sum(row.n for row in rows),))
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        for after_ms in (1000, 2000):
            self.handle.registerTimer(now_ms + after_ms)
        yield from ()

    async def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> list[Row]:
        cls = type(self)
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        assert timerValues.getCurrentProcessingTimeInMs() >= expiry_ms
        cls.under_way += 1
        cls.most = max(cls.most, cls.under_way)
        before = len(list(self.seen.get()))
        self.seen.appendValue((expiry_ms,))
        for _ in range(30 - cls.under_way):
            await asyncio.sleep(0)
        cls.under_way -= 1
        assert len(list(self.seen.get())) == before + 1
        if key[0] == cls.fails:
            raise ValueError("this alarm is broken")
        return [Row(word=key[0], n=before)]


def alarms(**calls: Any) -> ProcessorTest:
    Alarms.under_way = Alarms.most = 0
    Alarms.fails = ""
    return ProcessorTest(
        Alarms, input=INPUT, key="word", output=OUTPUT, time_mode="ProcessingTime", calls=calls
    )


def test_timers_of_different_keys_that_are_due_together_wait_together() -> None:
    with alarms(concurrent=7) as test:
        test.feed([(word, 1) for word in WORDS])
        test.advance(seconds=1)
        assert sorted((row["word"], row["n"]) for row in test.take()) == sorted((word, 0) for word in WORDS)
        assert Alarms.most == 7
        test.advance(seconds=1)
        assert sorted((row["word"], row["n"]) for row in test.take()) == sorted((word, 1) for word in WORDS)
        assert all(test.timers(word) == [] for word in WORDS)


def test_timers_of_a_key_fire_one_after_the_other_by_their_time() -> None:
    with alarms(concurrent=7) as test:
        begin = test.now
        test.feed([(word, 1) for word in WORDS[:9]])
        test.restart()
        test.advance_to(begin + timedelta(seconds=2))
        fired: dict[str, list[int]] = {}
        for row in test.take():
            fired.setdefault(row["word"], []).append(row["n"])
        assert fired == {word: [0, 1] for word in WORDS[:9]}
        wanted = [int((begin + timedelta(seconds=n)).timestamp() * 1000) for n in (1, 2)]
        assert test.state("w3")["seen"] == wanted


def test_a_timer_that_fails_ends_the_operator_with_its_key_and_time() -> None:
    test = alarms()
    Alarms.fails = "w5"
    test.feed([(word, 1) for word in WORDS])
    with pytest.raises(ValueError, match="this alarm is broken") as raised:
        test.advance(seconds=1)
    assert "handleExpiredTimer raised for key" in "".join(raised.value.__notes__)


MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: asked}
spec:
  code: {module: asked_code}
  operators:
  - name: words
    source: {files: {glob: '*', format: jsonl, schema: "word string, n bigint"}}
  - name: asked
    inputs: [words]
    keyBy: [word]
    processor: asked_code:Asked
    calls: {concurrent: 8}
    outputSchema: "word string, n bigint"
    onError: POLICY
  - {name: out, inputs: [asked], sink: {console: {}}}
"""
CODE = """
import asyncio

from pyspark.sql.streaming import StatefulProcessor

is_mended = False


class Asked(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n bigint")

    async def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            total = (self.total.get() or (0,))[0] + row.n
            self.total.update((total,))
            await asyncio.sleep(0)
            if row.n == 7 and not is_mended:
                raise ValueError("seven")
            yield (key[0], total)

    def close(self):
        pass
"""


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "asked_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "asked_code", raising=False)
    return tmp_path / "topology.yaml"


ROWS = [(word, n) for n in (1, 7, 2) for word in WORDS[:12]] + [("fine", 1), ("fine", 2)]


def test_a_row_that_async_code_fails_on_is_a_dead_letter_and_all_others_count(manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("POLICY", "DeadLetter"))
    with TopologyTest.of(manifest) as topology:
        topology.feed("words", ROWS)
        came = Counter((row["word"], row["n"]) for row in topology.rows("out"))
        assert came == Counter([(w, n) for w in (*WORDS[:12], "fine") for n in (1, 3)])
        assert topology.state("asked", "w3") == {"total": 3}


def test_a_key_that_async_code_fails_on_waits_and_keeps_its_order(manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("POLICY", "{policy: Retry, attempts: 3, backoff: 1s}"))
    with TopologyTest.of(manifest) as topology:
        topology.feed("words", ROWS)
        assert [row["n"] for row in topology.take("out")] == [1, 3]
        topology.feed("words", [("w3", 5), ("fine", 4)])
        assert [row["n"] for row in topology.take("out")] == [7]
        import asked_code  # type: ignore[import-not-found]

        asked_code.is_mended = True
        topology.advance(seconds=1.5)
        rows = topology.take("out")
        assert [row["n"] for row in rows if row["word"] == "w3"] == [1, 8, 10, 15]
        assert [row["n"] for row in rows if row["word"] == "w4"] == [1, 8, 10]


class InAnotherTask(Plain):
    async def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> list[Row]:
        await asyncio.create_task(self.elsewhere())
        return []

    async def elsewhere(self) -> None:
        self.total.get()


def test_state_belongs_to_the_call_and_to_no_task_that_it_begins() -> None:
    with (
        pytest.raises(Exception, match="it can be used only while handleInputRows runs"),
        ProcessorTest(InAnotherTask, input=INPUT, key="word", output=OUTPUT) as test,
    ):
        test.feed([("a", 1)])


class AsyncInit(Plain):
    async def init(self, handle: Any) -> None:
        pass

    async def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> list[Row]:
        return []


class NotAsync(Plain):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        return iter(())


def test_what_cannot_be_awaited_and_calls_that_say_nothing_are_refused() -> None:
    with pytest.raises(InvalidManifest, match=r"init of .* is async, and only handleInputRows"):
        ProcessorTest(AsyncInit, input=INPUT, key="word", output=OUTPUT)
    with pytest.raises(InvalidManifest, match="no handleInputRows or handleExpiredTimer that is async"):
        ProcessorTest(NotAsync, input=INPUT, key="word", output=OUTPUT, calls={"concurrent": 3})
