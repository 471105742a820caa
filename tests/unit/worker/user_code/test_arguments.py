"""Arguments of a manifest are checked against the signature of the code, and what is wrong is told with what
would be right."""

from __future__ import annotations

import functools
from typing import Any, Literal

import pytest
from pyspark.sql.streaming import StatefulProcessor

from penstock_worker.user_code.arguments import MAP, STEPS, processor_problem, step_problem


class Top(StatefulProcessor):
    def __init__(self, n: int, floor: float = 0.0, *, mode: Literal["sum", "max"] = "sum") -> None:
        self.n = n

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - pyspark's
        return []


def top(n: int) -> Top:
    return Top(n)


def step(row: Any, least, names=(), **more):  # type: ignore[no-untyped-def]
    return [row]


def plain(row, /, sep=","):  # type: ignore[no-untyped-def]
    return [row]


def two(row, other, /):  # type: ignore[no-untyped-def]
    return [row]


def nothing():  # type: ignore[no-untyped-def]
    return [1]


async def waiting(row):  # type: ignore[no-untyped-def]
    return [row]


def hinted(row: Any, at: NotThere, count: list[int] | None = None) -> list[Any]:  # type: ignore[name-defined]  # noqa: F821
    return [row]


def counted(row: Any, count: list[int] | None = None, when: Top | None = None) -> list[Any]:
    return [row]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (step, {"least": 1}),
        (step, {"least": 1, "anything": [1]}),
        (plain, {}),
        (plain, {"sep": ";"}),
        (nothing, {}),
        (print, {}),
        (functools.partial(step, least=3), {}),
        (str.split, {}),
        (hinted, {"at": 1, "count": "unseen, since not all hints can be read"}),
        (counted, {"count": [1, 2], "when": "a class of the user's is not compared"}),
        (counted, {"count": None}),
    ],
)
def test_a_step_that_can_be_called_so_is_right(code: Any, arguments: dict[str, Any]) -> None:
    assert step_problem(MAP, "m:code", code, arguments) is None


@pytest.mark.parametrize(
    ("code", "arguments", "told"),
    [
        (
            step,
            {},
            "'m:code' takes (row: 'Any', least, names=(), **more) and is called as code(row): it lacks "
            "'least'; give args: {least: ...}, or make it def code(row)",
        ),
        (
            plain,
            {"seb": ";"},
            "'m:code' takes (row, /, sep=',') and is called as code(row, seb=';'): it has no 'seb' (did you "
            "mean sep?); give args: {sep: ';'}, or make it def code(row, seb)",
        ),
        (
            two,
            {},
            "'m:code' takes (row, other, /) and is called as code(row); make it def code(row)",
        ),
        (
            nothing,
            {"n": 1},
            "'m:code' takes () and is called as code(row, n=1): it has no 'n'; make it def code(row, n)",
        ),
        (5, {}, "'m:code' is int, no function; a map takes a row and returns rows"),
        (Top, {"n": 1}, "'m:code' is a StatefulProcessor; a map is a function, and a processor needs keyBy"),
        (
            counted,
            {"count": [1, "2"]},
            "'m:code' takes count: list[int] | None, and args give count: [1, \"2\"] (Expected int, got str "
            "- at $[1]); give one of that type, or change the hint",
        ),
    ],
)
def test_a_step_that_cannot_is_told_with_what_is_right(
    code: Any, arguments: dict[str, Any], told: str
) -> None:
    assert step_problem(MAP, "m:code", code, arguments) == told


@pytest.mark.parametrize("code", [Top, top])
def test_a_processor_is_made_by_a_class_or_a_function(code: Any) -> None:
    assert processor_problem("m:code", code, {"n": 3}) is None
    assert processor_problem("m:code", code, {}) is not None


@pytest.mark.parametrize(
    ("code", "arguments", "told"),
    [
        (
            Top,
            {"floor": 1},
            "it lacks 'n'; give args: {floor: 1, n: ...}, or make it def __init__(self, floor)",
        ),
        (Top, {"n": "3"}, "takes n: int, and args give n: '3' (Expected int, got str)"),
        (Top, {"n": True}, "takes n: int, and args give n: true (Expected int, got bool)"),
        (
            Top,
            {"n": 3, "mode": "mean"},
            "takes mode: typing.Literal['sum', 'max'], and args give mode: 'mean'",
        ),
        (Top(3), {"n": 3}, "'m:code' is an object, made already; leave args out, or name its class"),
        (dict, {}, "is no subclass of pyspark.sql.streaming.StatefulProcessor, nor an object of one, nor"),
        (5, {}, "is no subclass of pyspark.sql.streaming.StatefulProcessor, nor an object of one, nor"),
    ],
)
def test_a_processor_that_cannot_be_made_is_told_with_what_is_right(
    code: Any, arguments: dict[str, Any], told: str
) -> None:
    assert told in str(processor_problem("m:code", code, arguments))


def test_a_whole_number_is_a_fraction_too() -> None:
    assert processor_problem("m:code", Top, {"n": 3, "floor": 1}) is None


def test_only_a_map_may_be_async() -> None:
    assert step_problem(MAP, "m:code", waiting, {}) is None
    told = step_problem(STEPS["Arrow"], "m:code", waiting, {})
    assert told is not None
    assert "'m:code' is async, and only a map may be" in told
