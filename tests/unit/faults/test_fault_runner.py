"""The fault runner judges rightly: what it draws can be run, and what is planted into sinks is found."""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from faults import leftovers, plan, process_tree, report, topology
from faults.__main__ import seeds_of
from faults.gaps import Gap, by_kind, flow, longest, pause_s
from faults.oracle import expected, judge
from faults.plan import KINDS, Phase
from faults.process_tree import Role
from faults.scene import Outcome
from faults.sink_watch import Stream
from faults.topology import Keyed, Topology, draw
from faults.user_code import A, Follow
from penstock.api.compile import compile_topology
from penstock.api.load import load_topology

Line = dict[str, object]


def two_stages(lines: int = 24) -> Topology:
    """s0 -> a -> b; a and b are written."""
    source = topology.Source("s0", 2, lines, 1, 1)
    stages = (Keyed("a", ("s0-rows",), ("key",), 4, 1), Keyed("b", ("a",), ("grp",), 2, 1))
    sinks = (topology.Sink("out0", ("b",)), topology.Sink("out1", ("a",)))
    return Topology(0, 1, "Process", (source,), stages, sinks)


def write_sinks(drawn: Topology, folder: Path, change: Callable[[list[Line]], None] | None = None) -> None:
    """What a right run writes, one file a sink; `change` alters the rows of b's."""
    before = [
        {"via": f"s0.{part}", "step": n, "line": f"s0.{part}.{n}.0", "trail": "s0", "key": f"k{n % 3}"}
        for n in range(drawn.sources[0].lines)
        for part in range(drawn.sources[0].partitions)
    ]
    for stage, sink in (("a", "out1"), ("b", "out0")):
        rows: list[Line] = []
        recent: dict[str, list[int]] = defaultdict(list)
        for row in before:
            via = f"{stage}:{row['key']}"
            recent[via].append(zlib.crc32(str(row["line"]).encode()))
            rows.append(
                {
                    **row,
                    "via": via,
                    "step": len(recent[via]),
                    "trail": f"{row['trail']}>{stage}",
                    "before": f"{row['via']}#{row['step']}",
                    "recent": sum(recent[via][-5:]),
                    "late": False,
                }
            )
        before = rows
        written = [dict(row) for row in rows]
        if stage == "b" and change is not None:
            change(written)
        path = folder / "out" / sink / f"{sink}-{stage}-0.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in written))


def test_every_seed_draws_a_topology_that_can_be_run(tmp_path: Path) -> None:
    for seed in range(60):
        folder = tmp_path / str(seed)
        drawn = draw(seed, 4)
        plan_of = compile_topology(load_topology(topology.write(drawn, folder)))
        assert {stage.operator for stage in plan_of.stages} == set(drawn.shards())
        assert (
            yaml.safe_load((folder / "topology.yaml").read_text())["spec"]["durability"] == drawn.durability
        )
        assert drawn == draw(seed, 4)


def test_seeds_draw_all_that_a_topology_may_be() -> None:
    drawn = [draw(seed, 4) for seed in range(200)]
    assert {one.workers for one in drawn} == {1, 2, 3}
    assert {one.durability for one in drawn} == {"Process", "Disk"}
    assert {len(one.keyed) for one in drawn} == {1, 2, 3}
    assert {stage.tasks for one in drawn for stage in one.keyed} == {1, 2, 3}
    assert any(len(stage.inputs) > 1 for one in drawn for stage in one.keyed[1:]), "fan-in"
    readers = [[name for stage in one.keyed for name in stage.inputs] for one in drawn]
    assert any(len(set(names)) < len(names) for names in readers), "fan-out"
    assert any(len(sink.inputs) > 1 for one in drawn for sink in one.sinks)
    assert any(len(one.sinks) > 1 for one in drawn)


def test_seeds_draw_every_fault_in_every_phase() -> None:
    plans = [plan.draw(seed, 6) for seed in range(400)]
    blows = [blow for one in plans for drawn in one.rounds for blow in drawn.blows]
    blows += [one.last for one in plans if one.last is not None]
    assert {blow.kind.name for blow in blows} == set(KINDS)
    assert {blow.phase for blow in blows} == set(Phase)
    assert {kind.role for kind in KINDS.values()} == {None, *Role} - {Role.OTHER}
    assert plan.draw(3, 6) == plan.draw(3, 6)
    some = plan.draw(3, 6, ["task killed", "store killed"])
    assert {blow.kind.name for one in some.rounds for blow in one.blows} <= {"task killed", "store killed"}


def test_what_is_expected_follows_every_way_through_the_graph() -> None:
    source = topology.Source("s0", 1, 2, 2, 1)
    inner = (
        Keyed("a", ("s0-rows",), ("key",), 1, 1),
        topology.Stamp("a-stamped", "a"),
        Keyed("b", ("a-stamped", "s0-rows"), ("key",), 1, 1),
    )
    drawn = Topology(0, 1, "Process", (source,), inner, (topology.Sink("out", ("b", "a-stamped")),))
    lines = ("s0.0.0.0", "s0.0.0.1", "s0.0.1.0", "s0.0.1.1")
    trails = ("s0>a+>b", "s0>b", "s0>a+")
    assert expected(drawn) == {"out": {(line, trail): 1 for line in lines for trail in trails}}


def test_sinks_as_they_must_be_are_clean(tmp_path: Path) -> None:
    drawn = two_stages()
    write_sinks(drawn, tmp_path)
    verdict = judge(drawn, tmp_path)
    assert verdict.is_clean, verdict.examples
    assert verdict.rows == 2 * drawn.rows


def lose(rows: list[Line]) -> None:
    del rows[-1]


def double(rows: list[Line]) -> None:
    rows.append(rows[-1])


def swap(rows: list[Line]) -> None:
    rows[0], rows[6] = rows[6], rows[0]


def forget_list(rows: list[Line]) -> None:
    rows[9]["recent"] = 7


def go_back(rows: list[Line]) -> None:
    rows[9]["late"] = True


@pytest.mark.parametrize(
    ("change", "way"),
    [(lose, "lost"), (double, "doubled"), (swap, "reordered"), (forget_list, "wrong"), (go_back, "wrong")],
)
def test_a_planted_fault_of_rows_is_found(
    tmp_path: Path, change: Callable[[list[Line]], None], way: str
) -> None:
    drawn = two_stages()
    write_sinks(drawn, tmp_path, change)
    verdict = judge(drawn, tmp_path)
    assert getattr(verdict, way) >= 1
    assert any(way in example or "wrong state" in example for example in verdict.examples)


@pytest.mark.parametrize("tail", ['{"via": "b:k0", "st', '{"via": "b:k0"}\n', "\0\0\0\n"])
def test_a_line_that_is_no_row_is_torn(tmp_path: Path, tail: str) -> None:
    drawn = two_stages()
    write_sinks(drawn, tmp_path)
    (file,) = (tmp_path / "out" / "out0").iterdir()
    with file.open("a") as out:
        out.write(tail)
    verdict = judge(drawn, tmp_path)
    assert (verdict.torn, verdict.lost, verdict.doubled) == (1, 0, 0)


def test_a_sink_that_is_not_there_has_lost_all(tmp_path: Path) -> None:
    drawn = two_stages()
    assert judge(drawn, tmp_path).lost == 2 * drawn.rows


def test_a_pause_counts_from_the_last_growth_before_the_fault() -> None:
    grew_s = [1.0, 1.1, 1.2, 4.2, 4.3]
    assert pause_s(grew_s, 1.25, 4.4) == pytest.approx(3.0)
    assert pause_s(grew_s, 1.25, 9.3) == pytest.approx(5.0), "a pause that is not over"
    assert pause_s(grew_s, 3.0, 4.4) == 0, "it did not flow before the fault"
    assert pause_s([], 3.0, 4.4) == 0
    slow, quick = Stream("out", "a", "0", "s0.0"), Stream("out", "a", "0", "s0.1")
    both = {slow: grew_s, quick: [1.2, 2.1, 3.1, 4.0]}
    assert longest(both, [slow, quick], 1.25, 4.4) == (pytest.approx(3.0), slow.words())
    assert flow([4.3], 1.25, 4.5)
    assert not flow([4.3], 4.4, 4.5)
    assert not flow([4.3, 4.0], 1.25, 5.1)


def test_bounds_are_kept_by_kind_and_for_the_workers_that_were_not_hit() -> None:
    fine = Gap("task killed", 2, 1, 0.4, 1.0, "out/a", 0.2, "out/b")
    above = Gap("task killed", 2, 2, 1.5, 1.0, "out/a", 0.7, "out/b")
    assert fine.faults() == []
    assert len(above.faults()) == 2
    assert above.faults(slack=2) == []
    (line,) = by_kind([fine, above])
    assert (line.count, line.max_s, line.others_s, line.above) == (2, 1.5, 0.7, 1)


def test_the_report_ends_with_one_object_and_fails_by_what_is_wrong() -> None:
    outcome = Outcome(two_stages())
    assert outcome.faults() == []
    outcome.gaps.append(Gap("JVM killed", 1, 0, 30.0, 12.0, "out/a"))
    assert outcome.faults() == ["gap: JVM killed: out/a paused for 30.00 s, bound 12 s"]
    assert json.loads(report.as_json([outcome]))["failed"] == [0]
    assert any("JVM killed" in line and "1 above" in line for line in report.table([outcome]))


def test_seeds_are_given_as_numbers_and_spans() -> None:
    assert seeds_of("3,5,8-10") == [3, 5, 8, 9, 10]
    assert seeds_of("1 2") == [1, 2]


def test_only_processes_of_the_scene_are_found(tmp_path: Path) -> None:
    assert process_tree.pids(tmp_path) == set()
    assert process_tree.end_all(tmp_path) == 0


def test_the_user_code_of_each_stage_has_its_own_name() -> None:
    assert issubclass(A, Follow)
    assert {kind.__name__.lower(): kind.NAME for kind in Follow.__subclasses__()} == {
        "a": "a",
        "b": "b",
        "c": "c",
    }


def test_files_that_are_no_part_of_a_run_are_left_over(tmp_path: Path) -> None:
    state, temporary = tmp_path / "state", tmp_path / "tmp"
    for name in ("lock", "run.json", "store/redis.log", "store/appendonlydir/appendonly.aof.1.incr.aof"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).touch()
    temporary.mkdir()
    assert leftovers.files(state, temporary) == []
    (state / "store" / "store.sock").touch()
    (temporary / "spark-1").mkdir()
    assert leftovers.files(state, temporary) == [
        "files: state/store/store.sock is left",
        "files: tmp/spark-1 is left",
    ]


def test_memory_that_grows_without_bound_is_told() -> None:
    before = leftovers.Memory(100 << 20, 10 << 20)
    assert before.growth(leftovers.Memory(120 << 20, 12 << 20)) == []
    assert len(before.growth(leftovers.Memory(300 << 20, 300 << 20))) == 2


def test_processes_that_are_left_are_named_and_counted() -> None:
    left = [process_tree.Found(1, Role.TASK, "w0", "a"), process_tree.Found(2, Role.TASK, "w0", "a")]
    assert leftovers.processes(left, "the end") == ["processes: 2 task w0 a left after the end"]
    assert leftovers.processes([], "the end") == []
