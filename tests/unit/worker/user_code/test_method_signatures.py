"""A method of a processor that cannot be called as Spark calls it is told with the right one beside it."""

# ruff: noqa: N802, N803 - pyspark's own names

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor

from penstock_worker.user_code.method_signatures import method_problems


class Right(StatefulProcessor):
    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return []

    def close(self) -> None:
        pass


class OtherNamesWhereSparkGoesByPlace(Right):
    def handleInputRows(self, k: Any, them: Any, times: Any, more: int = 3) -> Any:
        return []


class TakesAnything(Right):
    def handleInputRows(self, *given: Any) -> Any:
        return []

    def handleExpiredTimer(self, **given: Any) -> Any:
        return []


class TwoArguments(Right):
    def handleInputRows(self, key: Any, rows: Any) -> Any:
        return []


class OtherNameWhereSparkGoesByName(Right):
    def handleExpiredTimer(self, key: Any, timerValues: Any, info: Any) -> Any:
        return []


class NoHandle(Right):
    def init(self) -> None:
        pass


class Async(Right):
    async def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return []

    async def close(self) -> None:
        pass


class AsyncOfTwo(Right):
    async def handleInputRows(self, key: Any, rows: Any) -> Any:
        return []


class CloseWants(Right):
    def close(self, reason: Any) -> None:
        pass


class InitialOfTwo(Right):
    def handleInitialState(self, key: Any, initialState: Any) -> None:
        pass


@pytest.mark.parametrize("processor", [Right, OtherNamesWhereSparkGoesByPlace, TakesAnything])
def test_what_can_be_called_is_taken(processor: type[Right]) -> None:
    assert list(method_problems("m:P", processor())) == []


@pytest.mark.parametrize(
    ("processor", "told"),
    [
        (
            TwoArguments,
            "handleInputRows of 'm:P' takes (key: 'Any', rows: 'Any') and is called with key, rows and "
            "timerValues; make it def handleInputRows(self, key, rows, timerValues)",
        ),
        (
            OtherNameWhereSparkGoesByName,
            "handleExpiredTimer of 'm:P' takes (key: 'Any', timerValues: 'Any', info: 'Any') and is called "
            "with key, timerValues and expiredTimerInfo by name; make it def handleExpiredTimer(self, key, "
            "timerValues, expiredTimerInfo)",
        ),
        (NoHandle, "init of 'm:P' takes () and is called with handle; make it def init(self, handle)"),
        (
            Async,
            "close of 'm:P' is async, and only handleInputRows and handleExpiredTimer may be; make it def "
            "close(self)",
        ),
        (
            AsyncOfTwo,
            "handleInputRows of 'm:P' takes (key: 'Any', rows: 'Any') and is called with key, rows and "
            "timerValues; make it async def handleInputRows(self, key, rows, timerValues)",
        ),
        (
            CloseWants,
            "close of 'm:P' takes (reason: 'Any') and is called with nothing; make it def close(self)",
        ),
        (
            InitialOfTwo,
            "handleInitialState of 'm:P' takes (key: 'Any', initialState: 'Any') and is called with key, "
            "initialState and timerValues; make it def handleInitialState(self, key, initialState, "
            "timerValues)",
        ),
    ],
)
def test_what_cannot_is_told_with_the_right_one(processor: type[Right], told: str) -> None:
    assert [problem for _, problem in method_problems("m:P", processor())] == [told]
