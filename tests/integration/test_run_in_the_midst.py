"""Tasks and workers that are killed in the midst of user code which waits for somebody: a transform's Spark
job, an async processor's calls. Nothing is lost, nothing counts twice, each key keeps its order."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from clocks.eventually import eventually
from processes.live_processes import kill_tree
from processes.run_harness import Run, read_rows, rows_so_far

MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: midst}
spec:
  code: {module: midst}
  operators:
  - name: numbers
    source:
      files: {glob: "in/*.jsonl", format: jsonl, schema: "word string, number long", ratePerSecond: 200}
  - name: twice
    inputs: [numbers]
    transform: midst:twice
    args: {times: 2}
    every: 20ms
    outputSchema: "number long, twice long"
    onError: DeadLetter
  - name: asked
    inputs: [numbers]
    keyBy: [word]
    processor: midst:Asked
    calls: {concurrent: 32, timeout: 60s, retries: 20, retryAfter: 1ms}
    outputSchema: "word string, number long, nth long"
    shards: 8
  - {name: twices, inputs: [twice], sink: {files: {path: out/twice}}}
  - {name: askeds, inputs: [asked], sink: {files: {path: out/asked}}}
"""
CODE = """
import asyncio
import os
import random
import time
from pathlib import Path

from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

HERE = Path(__file__).parent


def came_to(name):
    # In the midst: who is to be killed here says so, once.
    try:
        (HERE / f"{name}.armed").rename(HERE / f"{name}.taken")
    except FileNotFoundError:
        return False
    (HERE / f"{name}.pid.new").write_text(str(os.getpid()))
    (HERE / f"{name}.pid.new").rename(HERE / f"{name}.pid")
    return True


def twice(df, times):
    if came_to("transform"):
        while not (HERE / "transform.killed").exists():
            time.sleep(0.01)
    numbers = [row.number for row in df.select("number").collect()]
    if 77 in numbers or 2077 in numbers:
        raise ValueError("77 is not allowed")
    return df.select((F.col("number") * times).alias("twice"), "number")


class Asked(StatefulProcessor):
    def init(self, handle):
        self.nth = handle.getValueState("nth", "n long")
        self.last = handle.getListState("seen", "number long")

    async def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            nth = (self.nth.get() or (0,))[0] + 1
            self.nth.update((nth,))
            self.last.appendValue((row.number,))
            await asyncio.sleep(0)
            if came_to("async"):
                await asyncio.sleep(60)
            yield (key[0], row.number, nth)
        await asyncio.sleep(random.random() / 1000)
        if random.random() < 0.1:
            raise ConnectionError("away for a moment")
        assert sum(1 for _ in self.last.get()) == self.nth.get()[0]

    def close(self):
        pass
"""
ROWS, WORDS = 6_000, 30

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def in_the_midst(folder: Path, *names: str) -> int:
    """Wait until user code is there; answers the process that the last named runs in."""
    pid = 0
    for name in names:
        (folder / f"{name}.armed").touch()
    for name in names:
        place = folder / f"{name}.pid"
        eventually(place.exists, f"{name} is in the midst", seconds=60)
        pid = int(place.read_text())
        place.unlink()
    return pid


def test_what_is_killed_while_user_code_waits_loses_and_doubles_nothing(
    tmp_path: Path, runs: list[Run]
) -> None:
    (tmp_path / "topology.yaml").write_text(MANIFEST)
    (tmp_path / "midst.py").write_text(CODE)
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"word": f"w{n * 7 % WORDS}", "number": n}) + "\n" for n in range(ROWS)]
    (tmp_path / "in/a.jsonl").write_text("".join(lines))
    run = Run(tmp_path / "topology.yaml", tmp_path / "state", ("--workers", "1"))
    runs.append(run)
    run.start()

    os.kill(in_the_midst(tmp_path, "async"), signal.SIGKILL)
    in_the_midst(tmp_path, "transform")
    (task,) = run.tasks("twice")
    os.kill(task.pid, signal.SIGKILL)
    (tmp_path / "transform.killed").touch()
    eventually(lambda: rows_so_far(tmp_path / "out/twice") > 100, "it goes on")
    (tmp_path / "transform.killed").unlink()
    in_the_midst(tmp_path, "transform", "async")
    kill_tree(run.ready_worker("w0").pid)
    (tmp_path / "transform.killed").touch()

    assert run.finish(200) == 0, run.output
    came = Counter((row["number"], row["twice"]) for row in read_rows(tmp_path / "out/twice"))
    assert came == Counter((n, 2 * n) for n in range(ROWS) if n not in (77, 2077))
    by_word: dict[object, list[tuple[object, object]]] = {}
    for row in read_rows(tmp_path / "out/asked"):
        by_word.setdefault(row["word"], []).append((row["nth"], row["number"]))
    assert len(by_word) == WORDS
    for word, rows in by_word.items():
        numbers = [n for n in range(ROWS) if f"w{n * 7 % WORDS}" == word]
        assert sorted(rows) == list(enumerate(numbers, 1)), word
