"""`ProcessorTest`: a processor is fed, time passes, and what it puts out and keeps is read."""

# ruff: noqa: N802, N803 - pyspark's own names

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from penstock.manifest.faults import InvalidManifest
from penstock.testing import Misuse, OperatorFailed, ProcessorTest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
INPUT, OUTPUT = "word string, n bigint", "word string, n bigint"


class Plain(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle

    def close(self) -> None:
        pass


class Sum(Plain):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")
        self.seen = handle.getListState("seen", "word string, n bigint")
        self.counts = handle.getMapState("counts", "n bigint", "times bigint")
        self.in_memory = 0

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        total = (self.total.get() or (0,))[0]
        for row in rows:
            if row.n == 13:
                raise ValueError("13 brings bad luck")
            total += row.n
            self.in_memory += 1
            self.seen.appendValue((row.word, row.n))
            before = self.counts.getValue((row.n,)) or (0,)
            self.counts.updateValue((row.n,), (before[0] + 1,))
        self.total.update((total,))
        yield Row(word=key[0], n=total)


class InPandas(Plain):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        total = (self.total.get() or (0,))[0] + sum(int(frame["n"].sum()) for frame in rows)
        self.total.update((total,))
        yield pd.DataFrame({"word": [key[0]], "n": [total]})


class Remind(Plain):
    """A timer a minute behind each row, whose name tells the time; state with a time to live."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "n bigint", 30_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            self.last.update((row.n,))
            self.handle.registerTimer(now_ms + 60_000 * row.n)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        late_ms = timerValues.getCurrentProcessingTimeInMs() - expiredTimerInfo.getExpiryTimeInMs()
        yield Row(word=key[0], n=late_ms)


class Sessions(Plain):
    """Closes a key a minute of event time behind its last row."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for expiry in list(self.handle.listTimers()):
            self.handle.deleteTimer(expiry)
        listed = list(rows)
        self.count.update(((self.count.get() or (0,))[0] + len(listed),))
        self.handle.registerTimer(int(max(row.at for row in listed).timestamp() * 1000) + 60_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(word=key[0], n=self.count.get()[0])
        self.count.clear()


class Opening(Plain):
    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.total.update((initialState.n,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(word=key[0], n=self.total.get()[0] + sum(row.n for row in rows))


class Times(Plain):
    """Made with an argument."""

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(word=key[0], n=row.n * self.factor)


def of(processor: Any, **given: Any) -> ProcessorTest:
    return ProcessorTest(processor, **({"input": INPUT, "key": "word", "output": OUTPUT} | given))


def test_rows_of_a_key_come_together_and_outputs_stand_as_they_were_fed() -> None:
    with of(Sum) as test:
        test.feed([("b", 1), {"word": "a", "n": 2}, Row(word="b", n=3), {"word": "c"} | {"n": 0}])
        assert test.rows() == [{"word": "b", "n": 4}, {"word": "a", "n": 2}, {"word": "c", "n": 0}]
        test.feed([("a", 1)])
        assert test.take()[-1] == {"word": "a", "n": 3}
        assert test.take() == []


def test_state_is_read_as_the_processor_keeps_it() -> None:
    with of(Sum) as test:
        test.feed([("a", 2), ("a", 2), ("a", 5)])
        assert test.state("a") == {
            "total": 9,
            "seen": [{"word": "a", "n": 2}, {"word": "a", "n": 2}, {"word": "a", "n": 5}],
            "counts": {2: 2, 5: 1},
        }
        assert test.state(("a",)) == test.state({"word": "a"}) == test.state("a")
        assert test.state("nobody") == {"total": None, "seen": [], "counts": {}}


def test_what_is_not_in_state_is_gone_behind_a_restart() -> None:
    with of(Sum) as test:
        test.feed([("a", 2)])
        before = test.state("a")
        test.restart()
        assert test.state("a") == before
        test.feed([("a", 1)])
        assert test.rows() == [{"word": "a", "n": 2}, {"word": "a", "n": 3}]


def test_a_processor_of_the_pandas_form_is_tested_alike() -> None:
    with of(InPandas) as test:
        test.feed([("a", 1), ("b", 1), ("a", 2)])
        assert test.rows() == [{"word": "a", "n": 3}, {"word": "b", "n": 1}]
        assert test.state("a") == {"total": 3}


def test_timers_fire_at_their_very_time_and_state_expires() -> None:
    with of(Remind, time_mode="ProcessingTime", start=NOON) as test:
        test.feed([("a", 2), ("a", 1)])
        assert test.now == NOON
        assert test.timers("a") == [NOON + timedelta(minutes=1), NOON + timedelta(minutes=2)]
        assert test.state("a") == {"last": 1}
        test.advance(seconds=59, milliseconds=999)
        assert test.rows() == []
        assert test.state("a") == {"last": None}
        test.advance(milliseconds=1)
        assert test.rows() == [{"word": "a", "n": 0}]
        test.advance(days=30)
        assert test.rows() == [{"word": "a", "n": 0}] * 2
        assert test.timers("a") == []
        assert test.now == NOON + timedelta(days=30, minutes=1)


def test_timers_by_event_time_fire_when_the_watermark_has_passed() -> None:
    rows = {"input": "word string, at timestamp", "event_time": "at", "allowed_delay": "10s"}
    with of(Sessions, **rows) as test:
        assert test.watermark is None
        test.feed([("a", NOON), ("a", NOON + timedelta(seconds=30))])
        assert test.watermark == NOON + timedelta(seconds=20)
        test.feed([("b", NOON + timedelta(seconds=25)), ("a", NOON + timedelta(seconds=19))])
        assert test.late_rows() == [{"word": "a", "at": NOON + timedelta(seconds=19)}]
        test.advance_watermark(NOON + timedelta(seconds=90))
        assert test.rows() == [{"word": "b", "n": 1}]
        test.advance_watermark(NOON + timedelta(seconds=90, milliseconds=1))
        assert test.rows() == [{"word": "b", "n": 1}, {"word": "a", "n": 2}]
        assert test.state("a") == {"count": None}


def test_initial_state_is_handed_over_before_all_rows() -> None:
    with of(Opening, initial=[("a", 100)], initial_schema="word string, n bigint") as test:
        test.feed([("a", 1)])
        assert test.rows() == [{"word": "a", "n": 101}]


def test_arguments_objects_and_classes_made_in_the_test_are_taken() -> None:
    class Local(Times):
        pass

    for processor, args in ((Times, {"factor": 3}), (Times(3), None), (Local, {"factor": 3})):
        with of(processor, args=args) as test:
            test.feed([("a", 2)])
            assert test.rows() == [{"word": "a", "n": 6}]


def test_what_a_processor_raises_is_raised_as_it_was_with_the_users_frames_alone() -> None:
    test = of(Sum)
    test.feed([("a", 1)])
    with pytest.raises(ValueError, match="13 brings bad luck") as raised:
        test.feed([("a", 13)])
    assert [entry.name for entry in raised.traceback][-1] == "handleInputRows"
    assert raised.value.__notes__ == ["operator processor: handleInputRows raised for key tuple ('a',)"]
    # Nothing of that batch is kept.
    assert test.state("a")["total"] == 1
    with pytest.raises(OperatorFailed, match=r"(?s)has failed before in this test, .*13 brings bad luck"):
        test.feed([("a", 1)])


def test_rows_that_do_not_fit_fail_in_the_words_of_a_run() -> None:
    class Wrong(Plain):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            yield Row(word=key[0], n="many")

    test = of(Wrong)
    with pytest.raises(OperatorFailed, match=r"column 'n' \(2 of 2\) expects bigint, got str 'many'"):
        test.feed([("a", 1)])


def test_code_that_would_end_the_test_fails_it_instead() -> None:
    class Leaves(Plain):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            raise SystemExit(3)

    test = of(Leaves)
    with pytest.raises(OperatorFailed, match="SystemExit: 3"):
        test.feed([("a", 1)])


def test_what_validate_refuses_is_refused_under_the_names_of_the_arguments() -> None:
    with pytest.raises(InvalidManifest, match=r"key\[0\]: its input has no column 'wrd' \(did you mean word"):
        of(Sum, key="wrd")
    with pytest.raises(InvalidManifest, match=r"processor: .* uses registerTimer, which needs a time mode"):
        of(Remind)
    with pytest.raises(InvalidManifest, match="output: column 'n': type lng is unknown"):
        of(Sum, output="n lng")


def test_slips_of_a_test_are_told_with_what_is_right() -> None:
    with of(Sum) as test:
        for rows, message in (
            ([{"word": "a", "nn": 1}], r"no column 'nn' \(did you mean n\?\); it has word, n"),
            ([("a", "b")], "column 'n' .* expects bigint, got str 'b'"),
            ({"word": "a"}, r"takes a list of rows, .* write \[...\] around it"),
        ):
            with pytest.raises(Misuse, match=message):
                test.feed(rows)
        with pytest.raises(Misuse, match=r"has the key \(word\)"):
            test.state(("a", "b"))
        with pytest.raises(Misuse, match="time never goes back"):
            test.advance_to(test.now - timedelta(seconds=1))
        with pytest.raises(Misuse, match="no source of the topology has an eventTime"):
            test.advance_watermark(NOON)
    with pytest.raises(Misuse, match="initial_schema"):
        of(Opening, initial=[("a", 1)])
