"""A task whose processor has timers and times to live, with a clock that a test turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import Failures, WaitReady
from penstock_worker.task.loop import TaskLoop
from scenes.task_scene import MANIFEST, Between, Scene

START_MS = 1_000_000
"""About when the clock begins."""
_CODE = """
from pyspark.sql.streaming import StatefulProcessor


def split(line):
    return [line.value]


class Count(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        INIT

    def handleInputRows(self, key, rows, timers):
        now = timers.getCurrentProcessingTimeInMs()
        for row in rows:
            BODY
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        now = timerValues.getCurrentProcessingTimeInMs()
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        assert now >= expiry
        FIRED
        yield (key[0], expiry)

    def close(self):
        pass
"""


class TimerScene(Scene):
    """`body` runs for each line, which is its own key; `fired` for each timer, whose expiry comes out."""

    def __init__(
        self, folder: Path, body: str, fired: str = "pass", init: str = "pass", form: str = "Rows"
    ) -> None:
        super().__init__(folder)
        self.count_shards = ("count/0",)
        manifest = MANIFEST.replace("shards: 2", "shards: 1\n    timeMode: ProcessingTime\n    form: " + form)
        (folder / "topology.yaml").write_text(manifest)
        code = _CODE.replace("INIT", init).replace("BODY", body).replace("FIRED", fired)
        (folder / "loop_code.py").write_text(code)
        self.plan = compile_topology(load_topology(folder / "topology.yaml"))
        self.waits: list[WaitReady] = []
        self._sources = 0

    def begin(self, *lines: str) -> TaskLoop:
        """The task, when all lines were worked on."""
        (self.folder / "a.txt").write_text("".join(f"{line}\n" for line in lines))
        self.publish(["lines/a.txt"])
        self.turns(self.task("lines", ["lines/a.txt"]))
        task = self.count()
        self.turns(task, 6)
        return task

    def more(self, task: TaskLoop, *lines: str) -> None:
        """More lines, in a file of their own, are worked on by the task."""
        self._sources += 1
        name = f"b{self._sources}.txt"
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        self.publish_more(f"lines/{name}", 1 + self._sources)
        self.turns(self.task("lines", [f"lines/{name}"], f"lines.{name}"))
        self.turns(task, 6)

    def count(self, ready: str = "") -> TaskLoop:
        return self.task("count", self.count_shards, ready, waiter=_Waits(self))

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.sleep_us(milliseconds * 1000)

    def fired(self) -> list[tuple[str, int]]:
        """Key and expiry of what came out, in order."""
        assert self.store.call(Failures()) == {}
        lines = [
            json.loads(line)
            for path in (self.folder / "out").glob("*.jsonl")
            for line in path.read_text().splitlines()
        ]
        return [(line["word"], line["total"]) for line in lines]

    def timers(self) -> dict[bytes, int]:
        return self.node.topology("t").shards["count/0"].timers


class _Waits(Between):
    """Notes how long the task would wait."""

    def __init__(self, scene: TimerScene) -> None:
        super().__init__(scene.store)
        self._waits = scene.waits

    def call(self, call: Any) -> Any:
        if isinstance(call, WaitReady):
            self._waits.append(call)
        return super().call(call)
