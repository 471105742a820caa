"""A console sink in a cluster: the tasks print its rows, and acknowledge what they have printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from select import PIPE_BUF
from typing import Any

import pytest

from penstock.connectors.console import ConsoleSink
from penstock.dataflow.ddl import parse_schema
from penstock.errors import PermanentError
from penstock.store.codec import encode_batch
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Acknowledge, Answer, Measure, Request, WaitReady
from penstock_worker.sinks.console import ConsoleSinkWriter
from scenes.task_scene import Between, Scene, TurnedClock

ROWS = ['{"word":"ash","total":3}', '{"word":"sea","total":2}']


class Waiting(Between):
    """Time passes while a task waits; acknowledgements are lost where `loses` is set."""

    def __init__(self, store: MemoryStore, clock: TurnedClock, *, loses: bool = False) -> None:
        super().__init__(store)
        self._clock = clock
        self._loses = loses

    def call(self, call: Request[Any]) -> Any:
        return self.pipeline([call])[0]

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        self._clock.sleep_us(sum(call.timeout_ms * 1000 for call in calls if isinstance(call, WaitReady)))
        lost = [isinstance(call, Acknowledge) and self._loses for call in calls]
        return [
            Answer.OK if is_lost else self._store.call(call)
            for call, is_lost in zip(calls, lost, strict=True)
        ]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Words wait for the operator that counts them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a.txt").write_text("ash sea ash\nsea ash\n")
    scene = Scene(tmp_path, sink="{console: {}}")
    scene.publish(["lines/a.txt"])
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    return scene


def counting(scene: Scene, ready: str, *, prints: bool, loses: bool = False) -> None:
    store = Waiting(scene.store, scene.clock, loses=loses)
    scene.turns(scene.task("count", scene.count_shards, ready, store, store, prints=prints))


def left(scene: Scene) -> int:
    found = scene.store.call(Measure(scene.count_shards))
    return sum(one.outbox_entries for one in found if one is not None)


def test_a_task_that_prints_leaves_nothing_to_deliver(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    counting(scene, "one", prints=True)
    assert sorted(capfd.readouterr().out.splitlines()) == ROWS
    assert left(scene) == 0


def test_a_task_whose_rows_the_command_prints_leaves_them(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    counting(scene, "one", prints=False)
    assert capfd.readouterr().out == ""
    assert left(scene) > 0


def test_what_was_not_acknowledged_is_printed_again_by_the_next_owner(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    counting(scene, "one", prints=True, loses=True)
    counting(scene, "two", prints=True)
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(ROWS * 2)
    assert left(scene) == 0


class Pipe:
    """Keeps what is written between two flushes; as sys.stdout, and as its buffer."""

    def __init__(self, error: OSError | None = None) -> None:
        self.buffer = self
        self.parts: list[bytes] = []
        self._error = error

    def write(self, part: bytes) -> None:
        self.parts.append(part)

    def flush(self) -> None:
        if self._error is not None:
            raise self._error


def test_tasks_that_share_a_pipe_break_no_line_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    monkeypatch.setattr("sys.stdout", pipe)
    schema = parse_schema("text string")
    rows = [["x" * 900], ["y" * 3000], ["z" * 500], ["long" * PIPE_BUF], ["end"]]
    payload = encode_batch([1] * len(rows), rows)
    assert ConsoleSinkWriter(ConsoleSink("out"), schema).write("count/0", b"", [(1, payload)]) == b""
    assert all(part.endswith(b"\n") for part in pipe.parts)
    assert [part.count(b"\n") for part in pipe.parts] == [2, 1, 1, 1]
    assert sum(len(part) > PIPE_BUF for part in pipe.parts) == 1


def test_an_output_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Pipe(BrokenPipeError(32, "Broken pipe")))
    writer = ConsoleSinkWriter(ConsoleSink("out"), parse_schema("text string"))
    with pytest.raises(PermanentError, match="rows of out cannot be printed: Broken pipe"):
        writer.write("count/0", b"", [(1, encode_batch([1], [["a"]]))])
