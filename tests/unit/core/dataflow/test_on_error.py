"""What becomes of rows on which code raises: waits between calls, rows taken apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from operator import attrgetter

import pytest

from penstock.dataflow.on_error import BACKOFF_MS_MAX, DEAD_LETTER, FAIL, FAILS, OnError, taken_apart


class Fault(Exception):
    """What the code raises."""


def test_each_wait_is_twice_as_long_as_the_one_before_and_a_minute_at_the_most() -> None:
    retry = OnError(FAIL, attempts=40, backoff_ms=100)
    waits = [retry.wait_ms(failed) for failed in range(1, 41)]
    assert waits[:4] == [100, 200, 400, 800]
    assert waits[-1] == BACKOFF_MS_MAX
    assert retry.wait_ms(41) is None


def test_without_a_word_the_operator_fails_at_the_first_call() -> None:
    assert FAILS.fails
    assert not FAILS.keeps_letters
    assert FAILS.wait_ms(1) is None
    assert not OnError(DEAD_LETTER).fails
    assert not OnError(FAIL, attempts=1).fails


@pytest.mark.parametrize("seed", range(20))
def test_only_rows_that_fail_alone_are_refused_and_all_others_worked_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    rows = list(range(rng.randint(1, 40)))
    bad = {row for row in rows if rng.random() < 0.2} or {rows[-1]}
    worked: list[int] = []
    refused: list[int] = []

    def call(some: Sequence[int]) -> Sequence[int]:
        if bad & set(some):
            raise Fault
        worked.extend(some)
        return [10 * row for row in some]

    made = taken_apart(rows, call, lambda row, _error: refused.append(row), Fault, Fault())
    assert refused == sorted(bad)
    assert worked == [row for row in rows if row not in bad]
    assert made == [10 * row for row in worked]


def test_one_bad_row_of_many_costs_few_calls() -> None:
    calls = 0

    def call(some: Sequence[int]) -> Sequence[int]:
        nonlocal calls
        calls += 1
        if 700 in some:
            raise Fault
        return some

    taken_apart(range(1024), call, lambda _row, _error: None, Fault, Fault())
    assert calls == 20


class Taken(Fault):
    """With how many rows were taken."""

    def __init__(self, taken: int) -> None:
        super().__init__(taken)
        self.taken = taken


def ahead_by(rows: int, bad: set[int], calls: list[int]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Code that looks at each row only when it has taken some more."""

    def call(some: Sequence[int]) -> Sequence[int]:
        calls.append(len(some))
        for at, row in enumerate(some):
            if row in bad:
                raise Taken(min(len(some), at + 1 + rows))
        return some

    return call


@pytest.mark.parametrize("ahead", [0, 1, 7, 1000])
@pytest.mark.parametrize("seed", range(20))
def test_only_bad_rows_are_refused_however_many_were_taken_by_then(seed: int, ahead: int) -> None:
    rng = random.Random(seed)
    rows = list(range(rng.randint(1, 40)))
    bad = {row for row in rows if rng.random() < 0.2} or {rows[0]}
    refused: list[int] = []
    calls: list[int] = []
    call = ahead_by(ahead, bad, calls)
    with pytest.raises(Taken) as first:
        call(rows)
    made = taken_apart(
        rows, call, lambda row, _error: refused.append(row), Fault, first.value, attrgetter("taken")
    )
    assert refused == sorted(bad)
    assert made == [row for row in rows if row not in bad]


def test_a_bad_row_that_was_taken_last_costs_three_calls() -> None:
    calls: list[int] = []
    call = ahead_by(0, {700}, calls)
    taken_apart(range(1024), call, lambda _row, _error: None, Fault, Taken(701), attrgetter("taken"))
    assert calls == [700, 1, 323]


def test_rows_that_are_all_bad_cost_two_calls_each() -> None:
    calls: list[int] = []
    call = ahead_by(0, set(range(3000)), calls)
    refused: list[int] = []
    taken_apart(
        range(3000), call, lambda row, _error: refused.append(row), Fault, Taken(1), attrgetter("taken")
    )
    assert refused == list(range(3000))
    assert len(calls) < 2 * 3000


def test_another_fault_is_not_the_rows() -> None:
    def call(some: Sequence[int]) -> Sequence[int]:
        raise KeyError(some)

    with pytest.raises(KeyError):
        taken_apart([1, 2], call, lambda _row, _error: None, Fault, Fault())
