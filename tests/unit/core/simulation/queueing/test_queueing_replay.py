"""A policy in virtual time: what it is shown, what its actions cost, and when they take effect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from penstock.control.decision import (
    Action,
    AddExecutor,
    AssignCores,
    Health,
    MoveShards,
    PolicyDecision,
    RemoveExecutor,
    Treatment,
)
from penstock.control.snapshot import TopologySnapshot
from penstock.control.target import LatencyTarget
from penstock.simulation.queueing.ahead.snapshot_series import SnapshotSeries
from penstock.simulation.queueing.model import (
    Arrivals,
    Edge,
    InitialExecutor,
    Pauses,
    Run,
    Service,
    SimulatedOperator,
    SimulatedTopology,
    SpeedMix,
    Switching,
)
from penstock.simulation.queueing.replay import run

SLOT_US = 100_000
TARGET = LatencyTarget(latency_us=500_000.0)


@dataclass
class Script:
    """Does what it is told at given times, and remembers what it was shown."""

    todo: dict[int, tuple[Action, ...]] = field(default_factory=dict)
    shown: list[TopologySnapshot] = field(default_factory=list)
    name: str = "Script"

    def decide(self, snapshot: TopologySnapshot) -> tuple[PolicyDecision, ...]:
        self.shown.append(snapshot)
        actions = self.todo.get(snapshot.at_us, ())
        treatment = Treatment.SCALE_OUT if actions else Treatment.NONE
        return (
            PolicyDecision(
                snapshot.at_us, self.name, "o", treatment, "script", "told so", Health.GOOD, actions
            ),
        )


class Skimming(Script):
    """The same, and takes in at once what lies before its next action."""

    def observe_many(self, series: SnapshotSeries) -> int:
        before = [at_us for at_us in series.at_us.tolist() if at_us not in self.todo]
        count = next((i for i, at_us in enumerate(series.at_us.tolist()) if at_us in self.todo), len(before))
        self.shown += [series.snapshot(moment) for moment in range(count)]
        return count


def operator(
    *,
    service_us: float = 5_000.0,
    executors: int = 1,
    tasks: int = 1,
    start_delay_us: int = 0,
    switching: Switching | None = None,
    queue_rows_max: float | None = None,
    speeds: SpeedMix | None = None,
    state_bytes: float = 0.0,
) -> SimulatedOperator:
    return SimulatedOperator(
        name="o",
        shards=4,
        service_us=service_us,
        executors=tuple(InitialExecutor(f"e{i}", tasks, "n0") for i in range(executors)),
        start_delay_us=start_delay_us,
        switching=switching or Switching(),
        queue_rows_max=queue_rows_max,
        speeds=speeds or SpeedMix(),
        state_bytes=state_bytes,
    )


def even(rows: int, slots: int) -> Arrivals:
    """`rows` in each slot for each of four shards."""
    return Arrivals(SLOT_US, {"o": np.full((slots, 4), rows, dtype=np.int64)})


def go(
    one: SimulatedOperator, arrivals: Arrivals, policy: Script | None = None, *, exact: bool = False
) -> Run:
    return run(SimulatedTopology((one,)), arrivals, policy, TARGET, np.random.default_rng(1), exact=exact)


@pytest.mark.parametrize("exact", [False, True])
def test_a_queue_grows_by_what_it_cannot_work_and_drains_as_fast_as_it_can(exact: bool) -> None:
    # 4 * 10 rows of 5 ms a slot are twice what one executor works: 20 rows of work stay after each slot.
    rows = np.zeros((60, 4), dtype=np.int64)
    rows[:20] = 10
    found = go(operator(), Arrivals(SLOT_US, {"o": rows}), exact=exact).operators["o"]
    assert found.completed[:20].sum() == pytest.approx(400, abs=2)
    assert found.completed[:40].sum() == pytest.approx(800, abs=2)
    # Rows of slot m come out half a queue later: the last ones wait for 20 slots of 20 rows, 2 s.
    assert found.latency_mean_us[39] == pytest.approx(2_000_000 - 25_000, rel=0.03)
    assert found.mean_latency_us == pytest.approx(1_000_000, rel=0.03)


@pytest.mark.parametrize("exact", [False, True])
def test_snapshots_count_what_happened(exact: bool) -> None:
    policy = Script()
    go(operator(executors=2), even(3, 50), policy, exact=exact)
    last = policy.shown[-1].operators["o"]
    assert [seen.at_us for seen in policy.shown[:2]] == [100_000, 200_000]
    assert last.assignment == {"o/0": "e0", "o/1": "e0", "o/2": "e1", "o/3": "e1"}
    for sample in last.samples.values():
        assert sample is not None
        assert sample.arrived == 150
        assert 147 <= sample.completed <= 150
        assert sample.served_us == pytest.approx(sample.completed * 5_000, rel=0.01)
        assert sample.busy_us == sample.served_us
        # Six rows of 5 ms a slot: load 0.3, waiting 0.3 / 0.7 * 5 ms / 2.
        assert sample.waited_us is not None
        assert sample.waited_us / sample.completed == pytest.approx(1_071, rel=0.35)


@pytest.mark.parametrize("exact", [False, True])
def test_an_executor_costs_from_when_it_is_asked_for_and_works_from_when_it_has_started(exact: bool) -> None:
    actions = (AddExecutor("x"), MoveShards(("o/2", "o/3"), "e0", "x"))
    policy = Script({500_000: actions})
    found = go(operator(start_delay_us=1_000_000), even(2, 40), policy, exact=exact)
    assert found.operators["o"].tasks.tolist() == [1.0] * 5 + [2.0] * 35
    by_time = {seen.at_us: seen.operators["o"] for seen in policy.shown}
    assert by_time[600_000].treatment
    assert by_time[600_000].executors[1].tasks_ready == 0
    assert by_time[1_500_000].assignment["o/2"] == "e0"
    assert not by_time[1_600_000].treatment
    assert by_time[1_600_000].assignment["o/2"] == "x"
    assert by_time[1_600_000].executors[1].tasks_ready == 1


@pytest.mark.parametrize("exact", [False, True])
def test_who_moves_shards_stands_still_for_the_pause(exact: bool) -> None:
    switching = Switching(fixed_us=250_000, pauses=Pauses.EXECUTORS)
    policy = Script({1_000_000: (MoveShards(("o/0",), "e0", "e1"),)})
    found = go(operator(executors=3, switching=switching), even(2, 40), policy, exact=exact).operators["o"]
    # e0 has o/0 and o/1, e1 has o/2, e2 has o/3: from 1 s to 1.25 s only o/3 is worked.
    assert found.shard_completed is not None
    assert found.shard_completed[10:12, :3].sum() == pytest.approx(0.0, abs=1.1)
    assert found.shard_completed[10:12, 3].sum() == pytest.approx(4, abs=1)
    assert found.shard_completed[10:20].sum() == pytest.approx(80, abs=2)
    (switch,) = found.switches
    assert (switch.asked_us, switch.done_us, switch.switching_us) == (1_000_000, 1_250_000, 250_000)


@pytest.mark.parametrize("exact", [False, True])
def test_repartitioning_stops_everybody(exact: bool) -> None:
    switching = Switching(fixed_us=500_000, pauses=Pauses.OPERATOR)
    moves = (MoveShards(("o/0", "o/1"), "e0", "e1"), MoveShards(("o/2", "o/3"), "e1", "e0"))
    policy = Script({1_000_000: moves})
    found = go(operator(executors=2, switching=switching), even(2, 40), policy, exact=exact).operators["o"]
    assert found.completed[10:15].sum() == pytest.approx(0.0, abs=2.1)
    assert found.completed[:20].sum() == pytest.approx(160, abs=3)
    assert policy.shown[-1].operators["o"].assignment["o/2"] == "e0"


@pytest.mark.parametrize("exact", [False, True])
def test_rows_that_wait_go_with_their_shard(exact: bool) -> None:
    # One executor holds all four shards and has a queue of 1 s; then two of them go elsewhere.
    rows = np.zeros((40, 4), dtype=np.int64)
    rows[:10] = 10
    policy = Script({1_000_000: (MoveShards(("o/2", "o/3"), "e0", "e1"),)})
    one = SimulatedOperator(
        "o", 4, 5_000.0, (InitialExecutor("e0"), InitialExecutor("e1")), assignment=(0, 0, 0, 0)
    )
    found = go(one, Arrivals(SLOT_US, {"o": rows}), policy, exact=exact).operators["o"]
    # 200 rows are left, 100 at each: done in 0.5 s in place of 1 s.
    assert found.completed[:15].sum() == pytest.approx(400, abs=3)
    assert found.completed[15:].sum() == pytest.approx(0, abs=3)


def test_executors_without_shards_go_at_the_end() -> None:
    actions = (MoveShards(("o/2", "o/3"), "e1", "e0"), RemoveExecutor("e1"))
    switching = Switching(fixed_us=300_000)
    found = go(operator(executors=2, switching=switching), even(2, 20), Script({500_000: actions}))
    assert found.operators["o"].tasks.tolist() == [2.0] * 8 + [1.0] * 12
    assert found.mean_tasks == pytest.approx(1.4)
    assert [decision.at_us for decision in found.decisions] == [500_000]


def test_skipping_what_needs_no_action_shows_and_brings_the_same() -> None:
    def outcome(policy: Script) -> Run:
        return go(operator(executors=2, start_delay_us=150_000), even(4, 300), policy)

    def todo() -> dict[int, tuple[Action, ...]]:
        return {
            500_000: (AddExecutor("x"), MoveShards(("o/1",), "e0", "x")),
            9_000_000: (MoveShards(("o/0",), "e0", "e1"),),
        }

    slowly, quickly = Script(todo()), Skimming(todo())
    one, other = outcome(slowly), outcome(quickly)
    assert [seen.at_us for seen in slowly.shown] == [seen.at_us for seen in quickly.shown]
    for a, b in zip(slowly.shown, quickly.shown, strict=True):
        assert a.operators["o"].executors == b.operators["o"].executors
        assert dict(a.operators["o"].samples) == dict(b.operators["o"].samples)
    assert one.operators["o"].latency_mean_us == pytest.approx(other.operators["o"].latency_mean_us)


def test_the_same_seed_gives_the_same_run() -> None:
    one = SimulatedOperator(
        "o", 4, 5_000.0, (InitialExecutor("e0"),), service=Service.EXPONENTIAL, speeds=SpeedMix(0.5, 0.5)
    )
    first, second = (go(one, even(3, 100)) for _ in range(2))
    assert first.operators["o"].latency_mean_us.tolist() == second.operators["o"].latency_mean_us.tolist()


def test_a_slower_executor_takes_longer() -> None:
    found = go(operator(speeds=SpeedMix(0.5, 1.0)), even(1, 100)).operators["o"]
    # 4 rows of 10 ms a slot: load 0.4, M/D/1.
    assert found.mean_latency_us == pytest.approx(10_000 * (1 + 0.5 * 0.4 / 0.6), rel=0.01)
    assert found.mixed_tasks.tolist() == found.tasks.tolist()
    assert not go(operator(), even(1, 100)).operators["o"].mixed_tasks.any()


def test_tasks_of_an_executor_share_its_shards_and_are_balanced() -> None:
    # Shard 0 brings half of the load: the two tasks end up with 0 | 1, 2, 3.
    rows = np.tile(np.array([9, 3, 3, 3], dtype=np.int64), (100, 1))
    found = go(operator(tasks=2), Arrivals(SLOT_US, {"o": rows})).operators["o"]
    assert found.completed.sum() == pytest.approx(1_800, abs=2)
    assert found.latency_mean_us[50:].mean() < 5_000 * (1 + 0.5 * 0.45 / 0.55) * 1.1


def test_more_cores_serve_more_and_remote_ones_cost_bytes() -> None:
    actions = (AssignCores("e0", {"n0": 1, "n1": 1}),)
    one = SimulatedOperator(
        "o", 4, 5_000.0, (InitialExecutor("e0", 1, "n0"),), bytes_in=100, bytes_out=28, state_bytes=1_000
    )
    topology = SimulatedTopology((one,), nodes={"n0": 1, "n1": 1})
    policy = Script({1_000_000: actions})
    found = run(topology, even(8, 100), policy, TARGET, np.random.default_rng(1)).operators["o"]
    # 32 rows of 5 ms a slot need 1.6 cores.
    assert found.completed[:10].sum() == pytest.approx(200, abs=1)
    assert found.completed.sum() == pytest.approx(3_200, abs=40)
    assert found.remote_bytes == pytest.approx(128 * 16 * 88, rel=0.1)
    assert found.migrated_bytes == 2_000
    assert policy.shown[-1].operators["o"].executors[0].cores == {"n0": 1, "n1": 1}
    sample = policy.shown[-1].operators["o"].samples["o/0"]
    assert sample is not None
    assert (sample.bytes_in, sample.state_bytes) == (80_000, 1_000)


def test_a_task_that_goes_works_until_its_last_shard_has_left() -> None:
    # Two tasks, one goes; each of its shards takes 60 ms to leave, one after another.
    policy = Script({1_000_000: (AssignCores("e0", {"n0": 1}),)})
    one = operator(tasks=2, switching=Switching(task_us_per_shard=60_000))
    found = go(one, even(3, 40), policy).operators["o"]
    assert found.tasks.tolist() == [2.0] * 10 + [1.0] * 30
    assert found.completed.sum() == pytest.approx(480, abs=2)
    assert 120_000 in [switch.switching_us for switch in found.switches]
    by_time = {seen.at_us: seen.operators["o"] for seen in policy.shown}
    assert by_time[1_100_000].treatment
    assert not by_time[1_300_000].treatment


def test_more_cores_than_a_node_has_are_refused() -> None:
    topology = SimulatedTopology((operator(),), nodes={"n0": 2})
    policy = Script({100_000: (AssignCores("e0", {"n0": 3}),)})
    with pytest.raises(ValueError, match="node n0 has 2 cores, 3 are given"):
        run(topology, even(1, 10), policy, TARGET, np.random.default_rng(1))


def test_a_full_queue_holds_its_source_back() -> None:
    # 40 rows come a slot, 20 can be worked: from a full queue on, 20 are taken.
    found = go(operator(queue_rows_max=100), even(10, 100)).operators["o"]
    assert found.arrived[20:].mean() == pytest.approx(20, rel=0.01)
    assert found.completed.mean() == pytest.approx(20, rel=0.01)
    # 100 rows before one's own.
    assert found.latency_mean_us[50:].mean() == pytest.approx(505_000, rel=0.1)


def test_the_fullest_executor_holds_everybody_back() -> None:
    # Shards 0 and 1 (e0) bring three times what shards 2 and 3 (e1) do: e1 is idle for two thirds.
    rows = np.tile(np.array([30, 30, 10, 10], dtype=np.int64), (100, 1))
    one = operator(executors=2, queue_rows_max=100)
    found = go(one, Arrivals(SLOT_US, {"o": rows})).operators["o"]
    assert found.completed[50:].mean() == pytest.approx(20 + 20 / 3, rel=0.01)


def test_a_full_operator_holds_back_those_upstream() -> None:
    fast = SimulatedOperator("a", 4, 1_000.0, (InitialExecutor("a0"),), queue_rows_max=100)
    slow = SimulatedOperator("b", 4, 5_000.0, (InitialExecutor("b0"),), queue_rows_max=100)
    topology = SimulatedTopology((fast, slow), (Edge("a", "b"),))
    arrivals = Arrivals(SLOT_US, {"a": np.full((200, 4), 20, dtype=np.int64)})
    found = run(topology, arrivals, None, TARGET, np.random.default_rng(1))
    assert found.operators["a"].arrived[100:].mean() == pytest.approx(20, rel=0.02)
    assert found.operators["b"].completed[100:].mean() == pytest.approx(20, rel=0.02)


def test_what_does_not_fit_is_refused() -> None:
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: go(operator(), even(1, 30), Script({100_000: (RemoveExecutor("e0"),)})), "still has shards"),
        (lambda: go(operator(), even(1, 30), Script({100_000: (RemoveExecutor("z"),)})), "no executor z"),
        (
            lambda: go(operator(), even(1, 30), Script({100_000: (MoveShards(("o/0",), "e0", "z"),)})),
            "no executor z",
        ),
        (
            lambda: go(
                operator(executors=2), even(1, 30), Script({100_000: (MoveShards(("o/0",), "e1", "e0"),)})
            ),
            "not where it is to leave from",
        ),
        (
            lambda: run(
                SimulatedTopology((operator(),)),
                even(1, 30),
                None,
                LatencyTarget(1e6, interval_us=150_000),
                np.random.default_rng(1),
            ),
            "no whole slots",
        ),
        (lambda: SimulatedTopology((operator(), operator())), "two operators have one name"),
    ]
    for case, message in cases:
        with pytest.raises(ValueError, match=message):
            case()


def test_an_action_during_a_treatment_is_the_policys_fault() -> None:
    move = MoveShards(("o/0",), "e0", "e1")
    policy = Script({100_000: (move,), 200_000: (move,)})
    one = operator(executors=2, switching=Switching(fixed_us=1_000_000))
    with pytest.raises(ValueError, match="treated already"):
        go(one, even(1, 30), policy)


def test_latencies_are_counted_after_the_warm_up() -> None:
    operator = SimulatedOperator("o", 2, 10_000.0, (InitialExecutor("o-0"),))
    rows = np.full((40, 2), 3, dtype=np.int64)
    arrivals = Arrivals(SLOT_US, {"o": rows})
    topology = SimulatedTopology((operator,))
    for target in (TARGET, None):
        counted = [
            run(
                topology,
                arrivals,
                None,
                target,
                np.random.default_rng(1),
                interval_us=SLOT_US,
                counts_from_us=begin * SLOT_US,
            )
            .operators["o"]
            .latency_counts.sum()
            for begin in (0, 30)
        ]
        assert counted == pytest.approx([240, 60], abs=3)


_TASKS_COME_AND_GO = """
import numpy as np
from penstock.control.decision import AssignCores
from penstock.simulation.queueing.model import InitialExecutor, SimulatedOperator
from penstock.simulation.queueing.station import Station

nodes = {f"node-{n}": 4 for n in range(6)}
one = SimulatedOperator("o", 12, 1000.0, (InitialExecutor("e", 1, "node-0"),))
station = Station(one, lambda: 0, nodes, None, 100_000, np.random.default_rng(1))
station.treat((AssignCores("e", dict.fromkeys(nodes, 2)),), 0.0)
station.happen(0.0, np.zeros(12))
print([server.node for server in station.servers.values()])
"""


def test_a_run_does_not_depend_on_how_strings_are_hashed() -> None:
    told = {
        subprocess.run(
            [sys.executable, "-c", _TASKS_COME_AND_GO],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(told) == 1
    assert "node-5" in told.pop()
