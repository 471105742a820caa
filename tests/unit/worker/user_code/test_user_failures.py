"""Whatever user code does wrong is its operator's reported failure, with its place, and nothing is lost."""

# ruff: noqa: T201 - what user code prints

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.port import Answer, Append, ClearFailure, Failures
from penstock_worker.user_code import recent_output
from penstock_worker.user_code.recent_output import LINE_CHARACTERS_MAX, LINES_MAX, RecentOutput
from scenes.task_scene import CODE, Scene

HINTED = "def handleInputRows(self, key, rows: 'Iterator[Row]', timers):"
RAISES = (
    "KeyboardInterrupt()",
    "asyncio.CancelledError()",
    "GeneratorExit()",
    "SystemExit(3)",
    "BaseException('of its own kind')",
    "ValueError('half a pair: \\ud83d')",
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    sys.modules.pop("loop_code", None)
    scene = Scene(tmp_path)
    (tmp_path / "a.txt").write_text("ash poison\n")
    scene.publish(["lines/a.txt"])
    yield scene
    sys.modules.pop("loop_code", None)
    sys.path[:] = [part for part in sys.path if part != str(tmp_path)]


def code(scene: Scene, text: str) -> None:
    (scene.folder / "loop_code.py").write_text("import asyncio, json\n" + text)
    sys.modules.pop("loop_code", None)


def work(scene: Scene, attempt: str = "") -> dict[str, str]:
    """Let a new task of each operator work; the failures then."""
    scene.turns(scene.task("lines", ["lines/a.txt"], ready=f"lines{attempt}"))
    scene.turns(scene.task("count", scene.count_shards, ready=f"count{attempt}"))
    return scene.store.call(Failures())


def goes_on(scene: Scene) -> None:
    """With correct code, from where it failed."""
    for operator in scene.store.call(Failures()):
        scene.store.call(ClearFailure(operator))
    code(scene, CODE.replace('if key[0] == "poison":', "if False:"))
    assert work(scene, "2") == {}
    assert scene.out() == ['{"word":"ash","total":1}', '{"word":"poison","total":1}']


@pytest.mark.parametrize("error", RAISES)
def test_whatever_a_processor_raises_is_a_reported_failure(scene: Scene, error: str) -> None:
    code(scene, CODE.replace('ValueError("this word is poison")', error))
    (failure,) = work(scene).values()
    assert "operator count: handleInputRows raised for key tuple ('poison',)" in failure
    assert f'{scene.folder}/loop_code.py", line' in failure
    assert error.partition("(")[0].rpartition(".")[2] in failure
    goes_on(scene)


@pytest.mark.parametrize("error", RAISES)
def test_whatever_a_step_raises_is_a_reported_failure(scene: Scene, error: str) -> None:
    code(scene, CODE.replace("return line.value.split()", f"raise {error}"))
    (failure,) = work(scene).values()
    assert "operator words: loop_code:split raised on Row(value='ash poison')" in failure
    assert f'{scene.folder}/loop_code.py", line' in failure
    goes_on(scene)


@pytest.mark.parametrize("error", ["KeyboardInterrupt()", "ValueError('no such file')"])
@pytest.mark.parametrize("place", ["init", "construction", "import"])
def test_code_that_cannot_be_used_is_reported_and_not_tried_again(
    scene: Scene, place: str, error: str
) -> None:
    broken = {
        "init": CODE.replace("        self.total = ", f"        raise {error}\n        self.total = "),
        "construction": CODE.replace(
            "    def init(", f"    def __init__(self):\n        raise {error}\n\n    def init("
        ),
        "import": CODE + f"\nraise {error}\n",
    }[place]
    code(scene, CODE)
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    code(scene, broken)
    task = scene.task("count", scene.count_shards)
    scene.turns(task)
    failure = scene.store.call(Failures())["count"]
    assert error.partition("(")[0] in failure
    assert f'{scene.folder}/loop_code.py", line' in failure
    assert "operator count: " in failure
    if place == "construction":
        assert "Count() raised" in failure
    assert scene.waiting() > 0
    goes_on(scene)


def test_a_text_that_is_no_unicode_is_a_reported_failure_of_a_source(scene: Scene) -> None:
    text = """[json.loads('"\\\\ud83d"')]"""
    code(scene, CODE.replace("line.value.split()", text))
    failure = work(scene)["lines"]
    assert "source lines: a row for count: column 'word' (1 of 1) holds" in failure
    assert "no Unicode text" in failure
    goes_on(scene)


def test_a_text_that_is_no_unicode_is_a_reported_failure_of_a_processor(scene: Scene) -> None:
    mended = CODE.replace('if key[0] == "poison":', "if False:")
    code(scene, mended.replace("yield (key[0], total)", 'yield ("\\ud83d", total)'))
    failure = work(scene)["count"]
    assert "operator count: a row for totals: column 'word' (1 of 2) holds" in failure
    goes_on(scene)


def test_an_entry_that_cannot_be_read_is_a_reported_failure_that_names_it(scene: Scene) -> None:
    code(scene, CODE)
    shard = scene.count_shards[0]
    damaged = Append("lines/a.txt", shard, 1, b"\x93\x01\xff", 1, 0)
    assert scene.store.call(damaged) is Answer.OK
    scene.turns(scene.task("count", scene.count_shards))
    failure = scene.store.call(Failures())["count"]
    assert failure.startswith(f"operator count: in the inbox of {shard}, an entry of 3 bytes cannot be read")
    assert "93 01 ff" in failure


# --- what it printed --------------------------------------------------------------------------------


def test_the_last_lines_are_kept_within_bounds() -> None:
    output = RecentOutput()
    assert output.told("w0") == ""
    for number in range(100):
        output.keep(f"line {number}\n")
    output.keep("half ")
    output.keep("\ud83d" + "x" * 1000)
    *lines, last = output.lines()
    assert len(lines) == LINES_MAX - 1
    assert lines[-1] == "line 99"
    assert last.startswith("half \\ud83dxxx")
    assert len(last) == LINE_CHARACTERS_MAX
    assert "log of worker w0" in output.told("w0")


def test_a_failure_shows_what_the_code_wrote_last(scene: Scene) -> None:
    code(scene, CODE)
    scene.turns(scene.task("lines", ["lines/a.txt"]))
    output = RecentOutput()
    task = scene.task("count", scene.count_shards, written=output)
    output.keep("seen by the user\n")
    scene.turns(task)
    failure = scene.store.call(Failures())["count"]
    assert "ValueError: this word is poison" in failure
    assert failure.endswith("(all of it is in the log of worker w1):\n  seen by the user")


def test_a_data_frame_where_rows_are_wanted_is_refused_by_name(scene: Scene) -> None:
    hinted = CODE.replace("def handleInputRows(self, key, rows, timers):", HINTED)
    for given in ("yield pd.DataFrame()", "return pd.DataFrame()"):
        text = hinted.replace("yield (key[0], total)", given).replace('if key[0] == "poison":', "if False:")
        code(scene, "import pandas as pd\nfrom pyspark.sql import Row\n" + text)
        attempt = given.partition(" ")[0]
        (failure,) = work(scene, attempt).values()
        assert "DataFrame" in failure
        assert "Row" in failure
        scene.store.call(ClearFailure("count"))


def test_a_row_where_data_frames_are_wanted_is_refused_by_name(scene: Scene) -> None:
    frames = HINTED.replace("Iterator[Row]", "Iterator[pd.DataFrame]")
    hinted = CODE.replace("def handleInputRows(self, key, rows, timers):", frames)
    code(scene, hinted.replace('if key[0] == "poison":', "if False:"))
    (failure,) = work(scene).values()
    assert "yielded tuple ('ash', 1); a processor of form Pandas yields DataFrames" in failure
    assert 'loop_code.py", line ' in failure


def test_a_processor_whose_form_is_unclear_is_a_reported_failure(scene: Scene) -> None:
    both = "yield (key[0], total)\n        yield pd.DataFrame({'word': [key[0]], 'total': [total]})"
    code(scene, "import pandas as pd\n" + CODE.replace("yield (key[0], total)", both))
    (failure,) = work(scene).values()
    assert "operator count: the form of its processor is unclear:" in failure
    assert "`form: Rows`" in failure


def test_what_user_code_prints_and_logs_is_written_at_once_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    output = RecentOutput()
    recent_output.install(output)
    print("seen", 5)
    print("and this", file=sys.stderr)
    print("a line in parts", end="")
    assert capsys.readouterr().out == "seen 5\n"
    print(end="\n")
    assert capsys.readouterr().out == "a line in parts\n"
    logging.getLogger("their.own").warning("careful")
    logging.getLogger("penstock_worker.spark.task_entry").warning("store away")
    sys.stdout.buffer.flush()
    *printed, logged = output.lines()
    assert printed == ["seen 5", "and this", "a line in parts"]
    assert logged.endswith("WARNING their.own careful")
