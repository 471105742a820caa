"""Running a processor on the rows of one key, and what is said when user code raises."""

# ruff: noqa: N802, N803 - pyspark's own names
from __future__ import annotations

import datetime
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import InitialState
from penstock.store.ownership import OwnedShard, OwnershipLost
from penstock.store.port import Load, Scan, StoreUnreachable
from penstock_worker.state.cache import ShardState, StateCache
from penstock_worker.user_code.running import (
    ProcessorRunner,
    UserCodeError,
    UserCodeMissing,
    load_attribute,
)
from scenes.owned_state import SHARD, OwnedState


class Count(StatefulProcessor):
    """What the tests' processors have in common."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
        before = self.total.get()
        total = (before[0] if before else 0) + sum(1 for _ in rows)
        self.total.update((total,))
        yield Row(word=key[0], total=total)


def runner_of(processor: Any, *, ddl: str = "word string, n long", key: int = 0) -> ProcessorRunner:
    return ProcessorRunner(
        processor, parse_schema(ddl), [key], parse_schema("word string, total long"), "count"
    )


def state_for(runner: ProcessorRunner, load: Any = None) -> ShardState:
    """A cache over an empty shard, or over `load`."""
    scene = OwnedState(lambda handle: None).scene
    cache = StateCache(runner.variables, runner.key_types, load or scene.store.call)
    return cache.shard(OwnedShard(SHARD, scene.claims[SHARD]))


class Added(Count):
    def __init__(self, more: int) -> None:
        self.more = [more]

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.more[0] += 1
        yield Row(word=key[0], total=self.more[0])


def test_each_task_works_with_a_copy_of_a_processor_that_is_an_object() -> None:
    added = Added(40)
    for _ in range(2):
        runner = runner_of(added)
        assert runner.run(state_for(runner), ("a",), [["a", 1]], 0) == [("a", 41)]
    assert added.more == [40]


def test_an_object_that_cannot_be_copied_is_refused_by_name() -> None:
    with pytest.raises(UserCodeError, match="a copy of Added raised"):
        runner_of(Added(threading.Lock()))  # type: ignore[arg-type]


def test_a_processor_counts_over_batches() -> None:
    runner = runner_of(Count)
    state = state_for(runner)
    assert runner.run(state, ("a",), [["a", 1], ["a", 2]], 5) == [("a", 2)]
    assert runner.run(state, ("b",), [["b", 1]], 5) == [("b", 1)]
    assert runner.run(state, ("a",), [["a", 1]], 6) == [("a", 3)]


def test_key_rows_and_times_are_what_spark_passes() -> None:
    seen: list[Any] = []

    class Note(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            seen.extend([key, next(rows), list(rows)])
            seen.append((timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()))
            return []

    runner = runner_of(Note, ddl="day date, n long")
    assert runner.run(state_for(runner), (0,), [[0, 1], [0, 2]], 1234) == []
    day = datetime.date(1970, 1, 1)
    assert seen == [(day,), Row(day=day, n=1), [Row(day=day, n=2)], (1234, -1)]


def test_rows_that_the_processor_does_not_ask_for_are_not_made() -> None:
    class Ignore(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            return iter([("x", 1)])

    runner = runner_of(Ignore)
    assert runner.run(state_for(runner), ("a",), [object()], 0) == [("x", 1)]


def raise_in_two_steps() -> None:
    raise ValueError("the user's own")


def test_what_user_code_raises_names_operator_key_and_the_users_frames_only() -> None:
    class Raise(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            yield from ()
            raise_in_two_steps()

    runner = runner_of(Raise)
    with pytest.raises(UserCodeError) as raised:
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)
    text = str(raised.value)
    assert "operator count" in text
    assert "('a',)" in text
    assert "ValueError: the user's own" in text
    assert "raise_in_two_steps" in text
    assert "penstock_worker" not in text


def test_a_refused_state_call_ends_at_the_users_line() -> None:
    class Wrong(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            self.total.update(("x",))
            return []

    runner = runner_of(Wrong)
    with pytest.raises(UserCodeError) as raised:
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)
    text = str(raised.value)
    assert 'self.total.update(("x",))' in text
    assert "expects bigint, got str 'x'" in text
    assert "clients.py" not in text


def test_a_long_traceback_is_cut() -> None:
    class Long(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            raise ValueError("x" * 100_000)

    runner = runner_of(Long)
    with pytest.raises(UserCodeError) as raised:
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)
    assert len(str(raised.value)) < 10_000


def test_exit_called_by_user_code_is_an_error_like_others() -> None:
    class Exit(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            sys.exit(3)

    runner = runner_of(Exit)
    with pytest.raises(UserCodeError, match="SystemExit: 3"):
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)


@pytest.mark.parametrize("returned", [None, 5, "abc", {"word": "a"}, Row(word="a", total=1)])
def test_what_is_no_iterable_of_rows_is_refused(returned: Any) -> None:
    class Return(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            return returned

    runner = runner_of(Return)
    with pytest.raises(UserCodeError, match="return an iterable of rows"):
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)


def test_a_row_that_does_not_fit_is_named_with_its_key() -> None:
    class Misfit(Count):
        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            return [("a", 1), ("a", "many")]

    runner = runner_of(Misfit)
    with pytest.raises(UserCodeError) as raised:
        runner.run(state_for(runner), ("a",), [["a", 1]], 0)
    assert "for key tuple ('a',)" in str(raised.value)
    assert "column 'total' (2 of 2) expects bigint, got str 'many'" in str(raised.value)


class Away:
    """A store that does not answer."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, call: Load | Scan) -> object:
        raise self._error


class Swallow(Count):
    """Takes any error of its state for an empty one."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
        try:
            before = self.total.get()
        except Exception:  # noqa: BLE001 - that is the case
            before = None
        yield Row(word=key[0], total=1 if before is None else before[0])


class Wrap(Count):
    """Makes an error of its own of any error of its state."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
        try:
            return [self.total.get()]
        except Exception as error:
            raise RuntimeError("no state") from error


@pytest.mark.parametrize("processor", [Count, Swallow, Wrap])
def test_a_store_that_is_away_is_no_fault_of_user_code_whatever_that_makes_of_it(processor: type) -> None:
    runner = runner_of(processor)
    state = state_for(runner, Away(StoreUnreachable("gone")))
    with pytest.raises(StoreUnreachable):
        runner.run(state, ("a",), [["a", 1]], 0)


@pytest.mark.parametrize("processor", [Count, Swallow, Wrap])
def test_a_lost_shard_is_no_fault_of_user_code_whatever_that_makes_of_it(processor: type) -> None:
    runner = runner_of(processor)
    owned = OwnedState(lambda handle: None)
    cache = StateCache(runner.variables, runner.key_types, owned.scene.store.call, 1 << 20)
    state = cache.shard(OwnedShard(SHARD, owned.scene.claims[SHARD]))
    owned.lose()
    with pytest.raises(OwnershipLost):
        runner.run(state, ("a",), [["a", 1]], 0)


def test_init_and_close_that_raise_are_named() -> None:
    class Broken(Count):
        def init(self, handle: Any) -> None:
            raise ValueError("no init")

    class BrokenClose(Count):
        def close(self) -> None:
            raise ValueError("no close")

    with pytest.raises(UserCodeError, match=r"(?s)operator count: init raised.*no init"):
        runner_of(Broken)
    with pytest.raises(UserCodeError, match=r"(?s)operator count: close raised.*no close"):
        runner_of(BrokenClose).close()


def test_state_kept_on_the_processor_lives_as_long_as_the_task() -> None:
    class Remember(Count):
        def init(self, handle: Any) -> None:
            self.calls = 0

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Any:
            self.calls += 1
            return [(key[0], self.calls)]

    runner = runner_of(Remember)
    state = state_for(runner)
    assert runner.run(state, ("a",), [], 0) == [("a", 1)]
    assert runner.run(state, ("b",), [], 0) == [("b", 2)]


# --- loading ----------------------------------------------------------------------------------------


@pytest.fixture
def code_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for modules that leave nothing behind."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_code_is_found_beside_the_manifest(code_dir: Path) -> None:
    (code_dir / "found_beside.py").write_text("class A:\n    b = 5\n")
    assert load_attribute("found_beside:A.b", code_dir) == 5


def test_what_is_not_there_is_named(code_dir: Path) -> None:
    (code_dir / "found_without.py").write_text("A = 1\n")
    with pytest.raises(UserCodeMissing, match="module 'found_without' has no 'B'"):
        load_attribute("found_without:B", code_dir)
    with pytest.raises(UserCodeMissing, match=r"(?s)module 'not_there_at_all' cannot be imported.*No module"):
        load_attribute("not_there_at_all:B", code_dir)


def test_a_module_that_raises_is_shown_with_its_line(code_dir: Path) -> None:
    (code_dir / "found_broken.py").write_text("A = 1\nB = 1 / 0\n")
    with pytest.raises(UserCodeMissing) as raised:
        load_attribute("found_broken:A", code_dir)
    assert "B = 1 / 0" in str(raised.value)
    assert "ZeroDivisionError" in str(raised.value)
    assert "importlib" not in str(raised.value)


class Begin(Count):
    """Notes what its initial state is, and how often it came."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        before = self.total.get()
        many = isinstance(initialState, pd.DataFrame)
        self.total.update(
            ((before[0] if before else 0) + int(initialState.n.sum() if many else initialState.n),)
        )


class BeginInPandas(Begin):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for frame in rows:
            yield pd.DataFrame({"word": [key[0]], "total": [(self.total.get() or (0,))[0] + len(frame)]})


@pytest.mark.parametrize(("processor", "form"), [(Begin, "Rows"), (BeginInPandas, "Pandas")])
def test_initial_state_is_handed_over_as_spark_does(processor: type, form: str) -> None:
    given, output = parse_schema("word string, n long"), parse_schema("word string, total long")
    initial = InitialState("count-initial", parse_schema("n long, word string"), (1,))
    runner = ProcessorRunner(processor, given, [0], output, "count", form, initial=initial)
    state = state_for(runner)
    runner.begin(state, ("a",), [[40, "a"], [2, "a"]], 5)
    assert runner.run(state, ("a",), [["a", 1]], 5) == [("a", 43)]
    assert runner.run(state, ("b",), [["b", 1]], 5) == [("b", 1)]

    frame = pd.DataFrame({"n": [40, 2], "word": ["a", "a"]})
    tester = (
        TwsTester(processor(), initialStateRow=[("a", Row(n=40, word="a")), ("a", Row(n=2, word="a"))])
        if form == "Rows"
        else TwsTester(processor(), initialStatePandas=[("a", frame)])
    )
    if form == "Rows":
        assert [row.total for row in tester.test("a", [Row(word="a", n=1)])] == [43]
    else:
        assert list(tester.testInPandas("a", pd.DataFrame({"word": ["a"], "n": [1]})).total) == [43]


def test_what_handle_initial_state_raises_names_it() -> None:
    class Raise(Count):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            raise_in_two_steps()

    schema = parse_schema("word string, n long")
    initial = InitialState("count-initial", schema, (0,))
    runner = ProcessorRunner(Raise, schema, [0], schema, "count", initial=initial)
    with pytest.raises(UserCodeError, match="handleInitialState raised for key tuple"):
        runner.begin(state_for(runner), ("a",), [["a", 1]], 0)
