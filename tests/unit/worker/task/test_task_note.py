"""The page that a task and its main process both have, and how a crash is told from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from penstock_worker.spark import crash_words as words
from penstock_worker.spark.crash_words import crash_words, killed_by_cgroup, told_by_run
from penstock_worker.task.note import Noted, NotePage, TaskNote

FAULT = """Fatal Python error: Segmentation fault

Thread 0x00007d (most recent call first):
  File "/app/beat.py", line 7 in beat

Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/app/word_count.py", line 31 in handleInputRows
  File "/venv/penstock_worker/user_code.py", line 150 in run

Thread 0x00007e (most recent call first):
  File "/app/other.py", line 1 in wait
"""


@pytest.fixture
def page() -> Iterator[NotePage]:
    made = NotePage()
    yield made
    made.close()


def test_a_task_beats_and_says_what_it_works_on(page: NotePage) -> None:
    assert page.read() == Noted(0, 0, "", "")
    note = TaskNote(page.place)
    try:
        first = page.read()
        assert first.pid > 0
        note.works_on("count/3")
        note.works_on("count/3")
        assert (page.read().shard, page.read().works) == ("count/3", 2)
        note.comes_to("tuple ('Größe\\n',)")
        assert page.read().key == "tuple ('Größe\\n',)"
        note.rests()
        assert (page.read().shard, page.read().key, page.read().works) == ("", "", 2)
        ticks = threading.Event()
        for _ in range(500):
            if page.read().beats > first.beats:
                return
            ticks.wait(0.01)
        raise AssertionError("no beat")
    finally:
        note.close()


def test_a_sink_at_work_names_the_shard_and_begins_no_batch_of_it(page: NotePage) -> None:
    note = TaskNote(page.place)
    try:
        note.works_on("count/3")
        note.rests()
        with note.at_work("count/5"):
            assert (page.read().shard, page.read().works) == ("count/5", 0)
        with suppress(ValueError), note.at_work("count/3"):
            assert (page.read().shard, page.read().works) == ("count/3", 1)
            raise ValueError("of user code")
        assert page.read().shard == ""
        with TaskNote(None).at_work("count/5"):
            pass
    finally:
        note.close()


def test_what_is_too_long_is_cut(page: NotePage) -> None:
    note = TaskNote(page.place)
    note.works_on("count/3")
    note.comes_to("é" * 5000)
    note.close()
    assert page.read().key.startswith("é" * 400)


def test_another_process_behind_the_same_numbers_is_not_written_to(page: NotePage) -> None:
    for place in (None, replace(page.place, token=b"0" * 16), replace(page.place, descriptor=0)):
        note = TaskNote(place, careful=True)
        note.works_on("count/3")
        assert not note.careful
        assert page.read() == Noted(0, 0, "", "")


AT = Noted(7, 1, "count/3", "tuple ('x',)", 1)


@pytest.mark.parametrize(
    ("code", "at", "reason", "told"),
    [
        (3, AT, "", "its process ended itself with exit code 3 as it worked on shard count/3, "
         "key tuple ('x',)"),
        (-11, replace(AT, key=""), "", "its process was killed by SIGSEGV as it worked on shard count/3"),
        (-9, AT, "out of memory", "its process was killed by SIGKILL as it worked on shard count/3, "
         "key tuple ('x',): out of memory"),
        (-9, replace(AT, shard="", key=""), "", "its process was killed by SIGKILL while no user code ran; "
         "that is most likely a lack of memory (workers.memory is 2Gi), or somebody killed it"),
        (None, replace(AT, pid=0), "", "its process crashed before it had begun"),
    ],
)  # fmt: skip
def test_a_crash_is_told_with_what_ended_it_and_where(code: int | None, at: Noted, reason: str, told: str):
    assert crash_words(code, at, memory="2Gi", reason=reason, fault="") == told


def test_of_what_python_wrote_at_its_end_users_frames_are_told() -> None:
    told = crash_words(-11, AT, memory="2Gi", reason="", fault=FAULT).splitlines()
    assert told[1:] == [
        "Fatal Python error: Segmentation fault",
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "/app/word_count.py", line 31 in handleInputRows',
    ]


def test_whom_the_run_has_killed_stands_in_its_file(tmp_path: Path) -> None:
    file = tmp_path / "w0.kills"
    assert told_by_run(str(file), 7) == ""
    file.write_text("77 other\n7 first\n7 out of memory\n")
    assert told_by_run(str(file), 7) == "out of memory"
    assert told_by_run("", 7) == ""


def test_a_containers_kernel_counts_whom_it_has_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "memory.events"
    monkeypatch.setattr(words, "_CGROUP_EVENTS", file)
    assert killed_by_cgroup() is None
    file.write_text("low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n")
    assert killed_by_cgroup() == 2
