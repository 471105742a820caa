"""What is legal for one row is legal at any load: many such rows at once come to the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.port import Failures, Measure
from penstock_worker.stages import keyed_stage, part_size, source_stage
from penstock_worker.values import held
from scenes.task_scene import FILES, MANIFEST, Scene

PAIRS = f"""
  - name: pairs
    inputs: [count]
    keyBy: [word]
    processor: "loop_code:Echo"
    outputSchema: "word string, text string"
    shards: 1024
  - name: totals
    inputs: [pairs]
    sink: {FILES}
"""
CODE = """
from pyspark.sql.streaming import StatefulProcessor


def split(line):
    return [line.value]


class Count(StatefulProcessor):
    def init(self, handle):
        self.text = handle.getValueState("text", "t string")
        self.items = handle.getListState("items", "t string")
        self.map = handle.getMapState("map", "k long", "t string")

    def handleInputRows(self, key, rows, timers):
        for row in rows:
            BODY

    def close(self):
        pass


class Echo(Count):
    def handleInputRows(self, key, rows, timers):
        return [(row.word, row.text) for row in rows]
"""


class LoadScene(Scene):
    """One shard of the operator "count", whose code is `body` for each row; "pairs" has 1024 behind it."""

    def __init__(self, folder: Path, body: str, *, pairs: bool = False) -> None:
        super().__init__(folder)
        self.count_shards = ("count/0",)
        manifest = MANIFEST.replace('"word string, total long"', '"word string, text string"')
        manifest = manifest.replace("shards: 2", "shards: 1")
        if pairs:
            manifest = manifest[: manifest.index("  - name: totals")] + PAIRS
        (folder / "topology.yaml").write_text(manifest)
        (folder / "loop_code.py").write_text(CODE.replace("BODY", body))
        self.plan = compile_topology(load_topology(folder / "topology.yaml"))

    def work(self, lines: list[str]) -> dict[str, str]:
        """What is reported when all lines were read and counted, or when that failed."""
        (self.folder / "a.txt").write_text("".join(f"{line}\n" for line in lines))
        self.publish(["lines/a.txt"])
        tasks = [self.task("lines", ["lines/a.txt"]), self.task("count", self.count_shards)]
        for _ in range(400):
            self.clock.sleep_us(20_000)
            for task in tasks:
                task.turn()
            failures = self.store.call(Failures())
            source, count = self.store.call(Measure(("lines/a.txt", "count/0")))
            assert source is not None
            assert count is not None
            if failures or (source.finished and not count.inbox_entries):
                return failures
        raise AssertionError("it goes on for ever")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


USERS = [f"user{n:04d}" for n in range(240)]


def test_state_and_outputs_that_fit_one_by_one_fit_together(folder: Path) -> None:
    scene = LoadScene(folder, 'text = "x" * 6000; self.text.update((text,)); yield (key[0], text)')
    assert scene.work(USERS) == {}
    assert len(scene.out()) == 240


def test_ten_kilobytes_of_state_for_each_key_fit(folder: Path) -> None:
    scene = LoadScene(folder, 'self.text.update(("x" * 10_000,)); yield (key[0], "short")')
    assert scene.work(USERS) == {}
    assert len(scene.out()) == 240


def test_four_rows_out_into_a_thousand_shards_fit(folder: Path) -> None:
    body = 'yield from ((f"{key[0]}/{n}", "x") for n in range(4))'
    scene = LoadScene(folder, body, pairs=True)
    assert scene.work(USERS) == {}
    counters = scene.store.call(Measure(("count/0",)))
    assert counters[0] is not None
    assert counters[0].completed_rows == 240
    shards = tuple(f"pairs/{n}" for n in range(1024))
    waiting = scene.store.call(Measure(shards))
    assert waiting == [None] * 1024, "nobody made them: all waits in the outbox"
    assert counters[0].outbox_entries >= 600


def test_two_thousand_rows_of_200_bytes_come_of_each_row(folder: Path) -> None:
    body = 'yield from ((key[0], "x" * 200) for n in range(2_000))'
    scene = LoadScene(folder, body)
    assert scene.work(USERS[:40]) == {}
    found = Counter(json.loads(line)["word"] for line in scene.out())
    assert found == dict.fromkeys(USERS[:40], 2_000)


def test_a_key_that_comes_often_is_split_by_its_rows(folder: Path) -> None:
    """The state of each row counts on that of the one before, wherever they are split."""
    body = """
            before = self.text.get()
            number = int(before[0][:8]) + 1 if before else 0
            self.text.update((f"{number:08d}" + "x" * 100_000,))
            self.items.appendValue(("y" * 50_000,))
            yield (key[0], f"{number} {len(list(self.items.get()))} " + "z" * 20_000)"""
    scene = LoadScene(folder, body)
    assert scene.work(["one"] * 100) == {}
    texts = [json.loads(line)["text"].split()[:2] for line in scene.out()]
    assert sorted(texts, key=lambda text: int(text[0])) == [[str(n), str(n + 1)] for n in range(100)]


def test_values_elements_and_entries_of_5_mb_are_kept_for_several_keys_at_once(folder: Path) -> None:
    body = """
            self.text.update(("x" * 5_000_000,))
            self.items.appendValue(("y" * 5_000_000,))
            self.map.updateValue((1,), ("z" * 5_000_000,))
            sizes = (len(self.text.get()[0]), len(next(iter(self.items.get()))[0]))
            yield (key[0], str((*sizes, len(self.map.getValue((1,))[0]))))"""
    scene = LoadScene(folder, body)
    assert scene.work(USERS[:4] * 2) == {}
    assert {json.loads(line)["text"] for line in scene.out()} == {str((5_000_000,) * 3)}
    assert len(scene.out()) == 8


def test_what_rows_come_to_is_not_held_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that grows too far is given up early, and the parts after it are smaller."""
    monkeypatch.setattr(held, "HELD_ROWS_MAX", 1_000)
    scene = LoadScene(folder, 'yield from ((key[0], "x") for n in range(300))')
    looked_at: list[int] = []
    check = held.Held.check

    def looked(self: held.Held, rows: list[object]) -> None:
        looked_at.append(len(rows))
        check(self, rows)

    monkeypatch.setattr(held.Held, "check", looked)
    monkeypatch.setattr(keyed_stage, "LOOK_GROUPS", 1)
    assert scene.work(USERS) == {}
    assert len(scene.out()) == 72_000
    assert max(looked_at) < 6_000


def test_state_that_is_read_is_not_held_for_all_keys_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_worker.state.cache.READ_BYTES_MAX", 3_000_000)
    body = """
            before = self.text.get()
            self.text.update((before[0] if before else "x" * 1_000_000,))
            yield (key[0], "again" if before else "first")"""
    scene = LoadScene(folder, body)
    assert scene.work(USERS[:20]) == {}
    (folder / "b.txt").write_text("".join(f"{user}\n" for user in USERS[:20]))
    scene.publish_more("lines/b.txt")
    tasks = [
        scene.task("lines", ["lines/b.txt"], ready="more"),
        scene.task("count", scene.count_shards, ready="next"),
    ]
    for _ in range(60):
        scene.clock.sleep_us(20_000)
        for task in tasks:
            task.turn()
    texts = Counter(json.loads(line)["text"] for line in scene.out())
    assert texts == {"first": 20, "again": 20}


@pytest.mark.parametrize("load", [1, 100])
def test_a_row_that_puts_out_too_much_is_refused_with_the_figure_at_any_load(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: int
) -> None:
    monkeypatch.setattr(held, "ROWS_OUT_MAX", 5_000)
    monkeypatch.setattr(held, "HELD_ROWS_MAX", 2_000)
    body = 'yield from ((key[0], "x") for n in range(6_000 if key[0] == "user0000" else 1))'
    scene = LoadScene(folder, body)
    failures = scene.work([*USERS[1:load], USERS[0]])
    assert failures == {
        "count": "operator count: one row puts out more than 5000 rows; yield fewer for one row"
    }


@pytest.mark.parametrize("load", [1, 100])
def test_a_row_beyond_16_mib_is_refused_with_the_figure_at_any_load(folder: Path, load: int) -> None:
    body = 'yield (key[0], "x" * (18_000_000 if key[0] == "user0000" else 1))'
    failures = LoadScene(folder, body).work([*USERS[1:load], USERS[0]])
    assert list(failures) == ["count"]
    assert failures["count"].startswith("operator count: a row for totals takes 180000"), failures["count"][
        :200
    ]
    assert "17825792 are the most for one row. Put out several smaller ones" in failures["count"]


@pytest.mark.parametrize("load", [1, 100])
def test_a_step_behind_a_source_is_refused_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: int
) -> None:
    monkeypatch.setattr(held, "ROWS_OUT_MAX", 5_000)
    monkeypatch.setattr(held, "HELD_ROWS_MAX", 2_000)
    scene = LoadScene(folder, 'yield (key[0], "x")')
    code = (folder / "loop_code.py").read_text()
    (folder / "loop_code.py").write_text(
        code.replace(
            "return [line.value]", 'return [line.value] * (6_000 if line.value == "user0000" else 1)'
        )
    )
    failures = scene.work([*USERS[1:load], USERS[0]])
    assert failures == {
        "lines": "source lines: one row puts out more than 5000 rows; yield fewer for one row"
    }


def test_a_source_that_meets_large_lines_reads_many_small_ones_at_once_again() -> None:
    size = part_size.PartSize(source_stage.READ_ROWS_MAX)
    size.worked(1024, 40.0)
    assert size.rows == 12
    parts = 0
    while size.is_limited:
        size.worked(size.rows, 0.01)
        parts += 1
    assert parts < 10
    size.given_up(1024)
    assert size.rows == 128
    size.worked(128, 0.01)
    assert size.rows == 128, "it is not tried again at once"
