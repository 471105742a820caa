"""The state directory of a run: what it keeps, when it may be resumed, who may use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.connectors.files import FilesSource
from penstock.dataflow.identity import identity_of
from penstock.dataflow.outline import console_targets, outline, sink_files
from penstock.dataflow.plan import Plan, Tasks
from penstock_operator.local.kept.run_record import (
    FORMAT,
    RunRecord,
    Start,
    StateDirectory,
    StateInUseError,
    StateUnusableError,
    check_state,
    decide_start,
)
from scenes.run_scene import word_count_plan

FOLDER = Path("state")


def record(plan: Plan | None = None) -> RunRecord:
    return RunRecord(
        format=FORMAT,
        topology="word-count",
        topology_uid="u1",
        created="2026-01-01T00:00:00+00:00",
        runs=1,
        identity=identity_of(plan or word_count_plan()),
        shards={"lines": ("lines/a.txt",), "count": ("count/0",)},
        sink_files=("/out/a",),
    )


def with_source(source: FilesSource) -> Plan:
    plan = word_count_plan()
    lines, count = plan.stages
    return replace(plan, stages=(replace(lines, head=source), count))


def test_without_a_record_a_run_starts_first() -> None:
    assert decide_start(None, {}, [], FOLDER, fresh=False) is Start.FIRST


def test_the_same_topology_resumes() -> None:
    assert decide_start(record(), record().identity, [], FOLDER, fresh=False) is Start.RESUME


def test_fresh_wins_over_everything() -> None:
    for known in (None, record()):
        assert decide_start(known, {"other": "x"}, [Path("out/a")], FOLDER, fresh=True) is Start.FRESH


def test_output_of_an_unknown_run_is_not_written_over() -> None:
    with pytest.raises(StateUnusableError, match=r"out holds output of an earlier run \(1 files\).*--fresh"):
        decide_start(None, {}, [Path("out/a.jsonl")], FOLDER, fresh=False)


def test_a_changed_topology_is_refused_with_what_differs() -> None:
    changed = identity_of(word_count_plan(shards=16))
    with pytest.raises(StateUnusableError) as refused:
        decide_start(record(), changed, [], FOLDER, fresh=False)
    assert "  count.shards: was 8, is 16\n" in str(refused.value)
    assert "--fresh" in str(refused.value)
    assert "keyBy" not in str(refused.value)


def test_an_operator_that_is_new_or_gone_is_a_difference() -> None:
    known = record()
    less = {name: value for name, value in known.identity.items() if not name.startswith("totals.")}
    with pytest.raises(StateUnusableError, match=r"totals\.sink: was files below out/, is nothing"):
        decide_start(known, less, [], FOLDER, fresh=False)


def test_rates_tasks_workers_and_code_may_change() -> None:
    plan = with_source(FilesSource("texts/*.txt", "text", 100.0))
    lines, count = plan.stages
    changed = replace(
        plan,
        stages=(lines, replace(count, tasks=Tasks(2, 2, 2))),
        workers_initial=4,
        memory_bytes=1 << 32,
        module="x",
    )
    assert identity_of(changed) == identity_of(word_count_plan())


def test_another_source_is_another_topology() -> None:
    assert identity_of(with_source(FilesSource("more/*.txt", "text", None))) != identity_of(word_count_plan())


def test_a_record_is_read_back_as_written(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    assert directory.read() is None
    directory.write(record())
    assert directory.read() == record()


def test_the_next_run_keeps_old_shards_and_files_and_adds_new_ones() -> None:
    before = record()
    after = before.next_run(
        before.identity | {"more": "files"}, {"lines": ["lines/b.txt"], "count": ["count/0"]}, ["/out/b"]
    )
    assert after.runs == 2
    assert after.identity == before.identity | {"more": "files"}
    assert after.shards == {"lines": ("lines/a.txt", "lines/b.txt"), "count": ("count/0",)}
    assert after.sink_files == ("/out/a", "/out/b")


def test_a_record_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StateUnusableError, match="--fresh"):
        directory.read()
    directory.write(replace(record(), format=FORMAT + 1))
    with pytest.raises(StateUnusableError, match=f"format {FORMAT + 1}"):
        directory.read()


def test_removing_state_counts_the_sink_files_that_were_there(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path / "state")
    directory.store_folder.mkdir(parents=True)
    (directory.store_folder / "x").write_text("x")
    directory.write(record())
    kept, removed, missing = (tmp_path / name for name in ("kept", "removed", "missing"))
    kept.touch()
    removed.touch()
    assert directory.remove_state([removed, missing]) == 1
    assert kept.exists()
    assert not directory.store_folder.exists()
    assert directory.read() is None


def test_a_directory_that_another_run_holds_is_refused_by_name(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from penstock_operator.local.kept.run_record import StateDirectory;"
        "d = StateDirectory(pathlib.Path(sys.argv[1])); d.lock(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(StateInUseError, match=f"Process {holder.pid} runs this topology already"):
            StateDirectory(tmp_path).lock()
    directory = StateDirectory(tmp_path)
    directory.lock()
    directory.unlock()


def test_what_a_killed_run_left_is_waited_for(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path)
    descriptor = first.lock()
    inherited = os.dup(descriptor)
    os.ftruncate(inherited, 0)
    os.pwrite(inherited, b"999999999", 0)
    first.unlock()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            os.close(inherited)

    second = StateDirectory(tmp_path)
    second.lock(wait)
    assert len(waits) == 3
    second.unlock()


def test_the_outline_has_every_operator_once_behind_its_stage() -> None:
    assert [(o.name, o.kind, o.stage) for o in outline(word_count_plan())] == [
        ("lines", "source", "lines"),
        ("words", "step", "lines"),
        ("count", "keyed", "count"),
        ("totals", "sink", "count"),
    ]


def test_sink_files_are_named_for_each_shard_of_the_stage_before(tmp_path: Path) -> None:
    files = sink_files(word_count_plan(), {"lines": ["lines/a"], "count": ["count/0", "count/1"]}, tmp_path)
    assert [file.name for file in files] == ["totals-count-0.jsonl", "totals-count-1.jsonl"]
    assert {file.parent for file in files} == {tmp_path / "out"}
    assert console_targets(word_count_plan()) == ()


# --- declared state ---------------------------------------------------------------------------------

TOTAL = {"count": {"total": "a value of (`n` bigint)", "seen": "a list of (`n` bigint)"}}


def test_state_that_the_code_declares_as_something_else_is_refused_with_both(tmp_path: Path) -> None:
    before = check_state(record(), TOTAL, set(), tmp_path)
    with pytest.raises(StateUnusableError) as refused:
        check_state(before, {"count": {"total": "a list of (`n` bigint)"}}, {"lines", "count"}, tmp_path)
    assert "  count, state 'total': was a value of (`n` bigint), is a list of (`n` bigint)\n" in str(
        refused.value
    )
    assert "--fresh" in str(refused.value)
    assert "seen" not in str(refused.value)


def test_state_that_nobody_has_written_yet_may_be_declared_anew(tmp_path: Path) -> None:
    before = check_state(record(), TOTAL, set(), tmp_path)
    anew = {"count": {"total": "a list of (`n` bigint)"}}
    assert check_state(before, anew, {"lines"}, tmp_path).state == anew


def test_a_new_variable_is_recorded_and_one_that_is_gone_stays_so(tmp_path: Path) -> None:
    before = check_state(record(), TOTAL, set(), tmp_path)
    after = check_state(before, {"count": {"more": "a value of (`n` date)"}}, {"count"}, tmp_path)
    assert after.state == {"count": {**TOTAL["count"], "more": "a value of (`n` date)"}}


def test_a_schema_that_became_what_it_may_become_is_recorded(tmp_path: Path) -> None:
    before = check_state(record(), TOTAL, set(), tmp_path)
    wider = {"count": {"total": "a value of (`more` string, `n` double)"}}
    after = check_state(before, wider, {"count"}, tmp_path)
    assert after.state == {"count": {**TOTAL["count"], **wider["count"]}}
    with pytest.raises(StateUnusableError):
        check_state(after, TOTAL, {"count"}, tmp_path)


def test_a_variable_that_is_deleted_is_recorded_no_more(tmp_path: Path) -> None:
    before = check_state(record(), TOTAL, set(), tmp_path)
    after = check_state(before, {"count": {"total": "", "never": ""}}, {"count"}, tmp_path)
    assert after.state == {"count": {"seen": TOTAL["count"]["seen"]}}


def test_a_record_from_before_state_was_recorded_can_be_read(tmp_path: Path) -> None:
    directory = StateDirectory(tmp_path)
    directory.write(record())
    path = tmp_path / "run.json"
    document = json.loads(path.read_text())
    del document["state"]
    path.write_text(json.dumps(document))
    assert directory.read() == record()
