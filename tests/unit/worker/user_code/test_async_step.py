"""Async code of a map: several calls at once and no more, in order, with time limits and tries."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.plan import Calls, Fanout, Step
from penstock.store.codec import decode_batch
from penstock.store.port import Bounds
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.user_code.async_step import AsyncCalls, CallFailed, is_async
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing
from penstock_worker.values.held import Held

NUMBERS = parse_schema("n bigint")
CODE = """
import asyncio

async def doubled(row):
    await asyncio.sleep(0)
    return [(2 * row.n,)] if row.n else []

async def each(row, times):
    for _ in range(times):
        await asyncio.sleep(0)
        yield row.n

def with_client(plus):
    async def call(row):
        return [row.n + plus]
    return call

async def broken(row):
    await asyncio.sleep(0)
    if row.n == 2:
        raise ValueError("no such row")
    return [row.n]

def plain(row):
    return [row.n]
"""


@pytest.fixture
def code_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "async_code.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "async_code", raising=False)
    return tmp_path


def fed(code_dir: Path, function: str, arguments: str = "", calls: Calls | None = None) -> list[int]:
    out = Fanout(NUMBERS, (), (ConsoleSink("out"),), ())
    step = Step("looked", f"async_code:{function}", out, arguments, calls=calls)
    outputs = OutputBatch(Bounds(), "s/0", Held(Bounds(), alone=False))
    FanoutRunner(Fanout(NUMBERS, (step,), (), ()), code_dir).feed([(n,) for n in range(4)], range(4), outputs)
    return [row[0] for output in outputs.drain() for row in decode_batch(output.payload).rows]


def test_what_async_code_gives_comes_out_in_the_order_of_the_rows(code_dir: Path) -> None:
    assert fed(code_dir, "doubled") == [2, 4, 6]
    assert fed(code_dir, "each", '{"times": 2}') == [0, 0, 1, 1, 2, 2, 3, 3]
    assert fed(code_dir, "with_client", '{"plus": 10}') == [10, 11, 12, 13]


def test_what_it_raises_is_told_with_the_row(code_dir: Path) -> None:
    with pytest.raises(UserCodeError, match=r"async_code:broken raised on Row\(n=2\)") as raised:
        fed(code_dir, "broken")
    assert "no such row" in str(raised.value)
    assert "async_step.py" not in str(raised.value)


def test_calls_of_code_that_is_not_async_are_refused(code_dir: Path) -> None:
    with pytest.raises(UserCodeMissing, match="is not async, so calls says nothing"):
        fed(code_dir, "plain", calls=Calls())


def test_as_many_calls_are_made_at_once_as_may_be_and_no_more() -> None:
    under_way = most = 0

    async def call(row: int) -> list[int]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        # The later a row comes, the sooner it is done.
        for _ in range(20 - row):
            await asyncio.sleep(0)
        under_way -= 1
        return [row]

    assert AsyncCalls(call, Calls(concurrent=5)).results(range(20)) == [[row] for row in range(20)]
    assert most == 5


def test_a_call_that_fails_is_made_again_as_often_as_it_may_be() -> None:
    tries: list[int] = []

    async def call(row: int) -> list[int]:
        tries.append(row)
        if tries.count(row) < 3:
            raise ConnectionError("away")
        return [row]

    assert AsyncCalls(call, Calls(retries=2, retry_after_ms=1)).results([7]) == [[7]]
    tries.clear()
    with pytest.raises(CallFailed) as failed:
        AsyncCalls(call, Calls(retries=1, retry_after_ms=1)).results([8])
    assert (failed.value.place, str(failed.value.error), tries) == (0, "away", [8, 8])


def test_a_call_that_takes_too_long_is_given_up_and_those_beside_it_too() -> None:
    ended: list[str] = []

    async def call(row: int) -> list[int]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return []

    began = time.monotonic()
    with pytest.raises(CallFailed, match="was not done within 20 ms"):
        AsyncCalls(call, Calls(concurrent=4, timeout_ms=20)).results(range(100))
    assert len(ended) == 4
    assert time.monotonic() - began < 10


def test_calls_share_a_loop_for_the_life_of_a_task() -> None:
    loops = set()

    async def call(row: int) -> list[int]:
        loops.add(id(asyncio.get_running_loop()))
        return []

    calls = AsyncCalls(call, Calls())
    calls.results([1, 2])
    calls.results([3])
    assert len(loops) == 1


def test_what_is_async_is_known() -> None:
    class Client:
        async def __call__(self, row: int) -> list[int]:
            return []

    assert is_async(Client())
    assert not is_async(Client)
    assert not is_async(print)
