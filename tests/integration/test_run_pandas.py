"""A word count in pandas, end to end, over the state that one in rows has left under another schema, and over
what has come since: into files that were read, and as new ones."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from house import ROOT
from processes.run_harness import Run, assert_counted_exactly_once, assert_figures_are_right, write_texts

EXAMPLE = ROOT / "examples" / "word-count"
IN_PANDAS = """
import pandas as pd

class CountInPandas(StatefulProcessor):
    def init(self, handle):
        handle.deleteIfExists("unused")
        self._total = handle.getValueState("total", "batches int, total long")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        before = self._total.get()
        batches, total = (0, 0) if before is None else before
        total += sum(len(frame["word"]) for frame in rows)
        self._total.update(((batches or 0) + 1, total))
        yield pd.DataFrame({"word": [key[0]], "total": [total]})
"""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def finished(runs: list[Run], folder: Path, *arguments: str) -> Run:
    run = Run(folder / "topology.yaml", folder / "state", arguments)
    runs.append(run)
    run.start()
    assert run.finish() == 0, run.output
    return run


def test_a_count_goes_on_in_pandas_where_one_in_rows_was_stopped_over_files_that_grew_and_new_ones(
    tmp_path: Path, runs: list[Run]
) -> None:
    shutil.copy(EXAMPLE / "topology.yaml", tmp_path / "topology.yaml")
    code = (EXAMPLE / "word_count.py").read_text().replace('"total long"', '"total int"')
    assert "total int" in code
    unused = '        self.unused = handle.getMapState("unused", "k int", "v int")\n\n    def handleInputRows'
    (tmp_path / "word_count.py").write_text(code.replace("\n    def handleInputRows", unused, 1))
    expected = write_texts(tmp_path / "texts", seed=3, files=2, lines=300)
    in_rows = finished(runs, tmp_path)
    assert_counted_exactly_once(tmp_path, expected)
    assert_figures_are_right(tmp_path, in_rows.summary, expected)

    (tmp_path / "word_count.py").write_text(code + IN_PANDAS)
    more = write_texts(tmp_path / "more", seed=4, files=2, lines=300)
    for number, path in enumerate(sorted((tmp_path / "more").iterdir())):
        path.rename(tmp_path / "texts" / f"more {number}.txt")
    with (tmp_path / "texts" / "text 0.txt").open("a") as text:
        text.write("appended appended\nafterwards\n")
    more.update(["appended", "appended", "afterwards"])
    in_pandas = finished(runs, tmp_path, "--set", "count.processor=word_count:CountInPandas")
    assert "changed after it was read to its end and is read on" in in_pandas.output
    assert_counted_exactly_once(tmp_path, Counter(expected) + more)
