"""Timers fire as in PySpark's own TwsTester: the same processor, set forward to the same times."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from scenes.timer_scene import START_MS, TimerScene

LOOKS_MS = (2_500, 7_000, 12_000)
"""After so long both look for timers."""
SET = f"self.handle.registerTimer({START_MS} + {{}})"
CASES = {
    "periodic": (
        SET.format(1_000),
        f"self.handle.registerTimer(expiry + 1_000) if expiry < {START_MS} + 8_000 else None",
    ),
    "replaced by each row": (
        "[self.handle.deleteTimer(at) for at in list(self.handle.listTimers())]; "
        f"self.handle.registerTimer({START_MS} + 5_000 + len(row.word))",
        "pass",
    ),
    "sets one in the past": (
        SET.format(1_000),
        f"self.handle.registerTimer(5) if expiry == {START_MS} + 1_000 else None",
    ),
    "deletes a later one": (
        "; ".join(SET.format(at) for at in (1_000, 6_000, 11_000)),
        f"self.handle.deleteTimer({START_MS} + 6_000)",
    ),
    "deletes itself, and what is not there": (
        SET.format(1_000),
        "self.handle.deleteTimer(expiry); self.handle.deleteTimer(77)",
    ),
    "set anew for its own time": (SET.format(1_000), "self.handle.registerTimer(expiry)"),
    "counts what it lists": (
        "; ".join(SET.format(at) for at in (1_000, 6_000, 11_000)),
        f"self.handle.registerTimer({START_MS} + 8_000 + len(list(self.handle.listTimers())))"
        f" if expiry < {START_MS} + 8_000 else None",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_processor_fires_what_it_does_in_pysparks_tester(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    body, fired = CASES[case]
    scene = TimerScene(tmp_path, body, fired)
    sys.modules.pop("loop_code", None)
    tester = TwsTester(importlib.import_module("loop_code").Count(), timeMode="ProcessingTime")
    tester.setProcessingTime(START_MS)
    task = scene.begin("a", "bb")
    for word in ("a", "bb"):
        assert tester.test(word, [Row(word=word)]) == []
    # What a handler sets for a time that has passed fires at once here, and with the next batch in Spark.
    theirs: list[tuple[str, int]] = []
    now_ms = START_MS
    for look_ms in LOOKS_MS:
        scene.pass_ms(START_MS + look_ms - now_ms)
        now_ms = START_MS + look_ms
        scene.turns(task, 6)
        for step in range(8):
            theirs += [tuple(row) for row in tester.setProcessingTime(now_ms + step)]
        assert sorted(scene.fired()) == sorted(theirs)
