"""Exactly once, in order, by one owner, within bounds, to the end: 11 750 seeded runs of the protocol, of
which `make test` plays 1 000.

A seed that fails is written into `kept_seeds.txt`, with the last steps of its run in the test's message; the
seeds of that file are run first. A change of the simulation gives seeds other runs: then the file only costs
time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.store.memory.store import MemoryStore
from penstock.store.port import Advanced, Answer, Claimed, Commit, Fetched, Request, SetTasks
from penstock_simulation.protocol.event_workload import Timed
from penstock_simulation.protocol.node import CALM
from penstock_simulation.protocol.world import Outcome, Parts, World, simulate
from penstock_worker.task import post_pace
from planted.planted_bugs import BUGS
from planted.planted_move_bugs import RoundsComeAgain

KEPT_SEEDS = Path(__file__).with_name("kept_seeds.txt")
"""Lines of kind and seed: seeds that failed once."""
PLANTED_SEEDS = Path(__file__).with_name("planted_seeds.txt")
"""Lines of seed and planted bug: a seed that shows what few others show. After a change of the simulation it
may show it no more: then another one is searched, which takes time."""

KINDS = {
    "still": Parts(),
    "moving": Parts(moves=True),
    "full": Parts(pressure=True),
    "moving-full": Parts(moves=True, pressure=True),
    "event-time": Parts(moves=True, event_time=True),
    "tables": Parts(moves=True, tables=True),
    "tables-full": Parts(moves=True, tables=True, pressure=True),
}
"""Whether shards go from store to store, stores come to their memory limits, stages go by event time, and
routing tables change. In
some runs of each kind a stage begins with initial rows, in some by event time it joins two sources, or a
partition is idle and comes back (`drawn_runs`)."""

SEEDS = {
    "still": 3_500,
    "moving": 5_000,
    "full": 1_000,
    "moving-full": 500,
    "event-time": 500,
    "tables": 1_000,
    "tables-full": 250,
}
SEEDS_PER_TEST = 125


def kept_seeds() -> list[tuple[str, int]]:
    pairs = (line.split() for line in KEPT_SEEDS.read_text().splitlines())
    return [(kind, int(seed)) for kind, seed in pairs]


def fail_with(outcomes: Iterable[Outcome], kind: str) -> None:
    """Name the seeds that broke a promise, keep them, and show how the first of them did."""
    broken = [outcome for outcome in outcomes if outcome.broken]
    if not broken:
        return
    known = kept_seeds()
    with KEPT_SEEDS.open("a") as file:
        file.writelines(f"{kind} {one.seed}\n" for one in broken if (kind, one.seed) not in known)
    seeds = "\n".join(f"seed {one.seed}, turn {one.turns}: {one.broken}" for one in broken[:10])
    pytest.fail(f"{len(broken)} {kind} runs:\n{seeds}\n{broken[0].trace}", pytrace=False)


@pytest.mark.parametrize(("kind", "seed"), kept_seeds())
def test_a_seed_that_failed_once_does_not_fail_again(kind: str, seed: int) -> None:
    fail_with([simulate(seed, KINDS[kind])], kind)


LATER = pytest.mark.slow(held_by="test_every_promise_holds_whatever_fails_and_moves")
"""Of a kind's runs of seeds all but the first of each 28 are left to the slow lane."""
RUNS = [
    pytest.param(kind, first, marks=[LATER] if first // SEEDS_PER_TEST % 28 else [])
    for kind, count in SEEDS.items()
    for first in range(0, count, SEEDS_PER_TEST)
]


@pytest.mark.parametrize(("kind", "first"), RUNS)
def test_every_promise_holds_whatever_fails_and_moves(kind: str, first: int) -> None:
    fail_with((simulate(seed, KINDS[kind]) for seed in range(first, first + SEEDS_PER_TEST)), kind)


@pytest.mark.parametrize("commits", [1, 2])
def test_every_promise_holds_where_few_commits_fill_a_post(
    commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operator here has as many shards as a post has commits, so posts in a row come of this alone."""
    monkeypatch.setattr(post_pace, "POST_COMMITS", commits)
    broken = [one for seed in range(60) if (one := simulate(seed, KINDS["moving"])).broken]
    assert not broken, f"seed {broken[0].seed}: {broken[0].broken}\n{broken[0].trace}"


def planted_seeds() -> dict[str, int]:
    """Planted bug -> the seed that is known to show it."""
    lines = (line.split(maxsplit=1) for line in PLANTED_SEEDS.read_text().splitlines())
    return {bug: int(seed) for seed, bug in lines}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    known = [seed for planted, seed in planted_seeds().items() if planted == bug]
    kind = "event-time" if BUGS[bug].event_time else "moving" if BUGS[bug].moves else "still"
    kind = "tables" if BUGS[bug].tables else kind
    kept = [seed for kept_kind, seed in kept_seeds() if kept_kind == kind]
    seeds = (*known, *kept, *range(1_000))
    caught = next((seed for seed in seeds if simulate(seed, BUGS[bug]).broken), None)
    assert caught is not None, (
        f"1 000 seeds do not show the bug {bug!r}; keep one that does in {PLANTED_SEEDS}"
    )


def test_seeds_are_kept_for_bugs_that_are_planted() -> None:
    assert planted_seeds().keys() - BUGS.keys() == set()


def test_a_call_for_a_round_that_comes_again_late_changes_nothing() -> None:
    fail_with((simulate(seed, Parts(moves=True, store=RoundsComeAgain)) for seed in range(60)), "moving")


def test_rows_of_a_key_that_only_change_places_are_seen_to() -> None:
    broken = (simulate(seed, BUGS["overtaken while it waits"]).broken for seed in range(1_000))
    assert re.search(r"row \d+ of \(.+\) (after|in place) \d+", next(filter(None, broken)))


def test_without_faults_nobody_is_fenced_and_a_shard_is_claimed_once_by_each_task_that_it_is_given() -> None:
    met: Counter[str] = Counter()
    given: dict[str, list[str]] = {}

    class Counting(MemoryStore):
        def call(self, call: Request[Any]) -> Any:
            answer = super().call(call)
            if isinstance(call, Commit):
                met[str(answer)] += 1
            if isinstance(call, SetTasks):
                for shard, task in call.mapping:
                    tasks = given.setdefault(shard, [])
                    if tasks[-1:] != [task]:
                        tasks.append(task)
            return answer

    given_on = 0
    for seed in range(50):
        given.clear()
        world = World(seed, Parts(store=Counting))
        world.roughness = replace(world.roughness, rates=CALM, event_rate=0.0)
        # So slow that almost all tasks are up when their main process looks again, and no load is balanced.
        world.pace = 0.01
        world.run()
        for node in world.nodes.values():
            for shard, record in node.records():
                assert record.epoch <= len(given[shard]), (seed, shard)
                given_on += record.epoch > 1
    assert met.keys() == {"OK"}
    assert given_on <= 5


def test_the_same_seed_makes_the_same_run() -> None:
    bug = BUGS["acknowledged before it is delivered"]
    first = [simulate(seed, bug) for seed in range(20)]
    assert first == [simulate(seed, bug) for seed in range(20)]
    assert any(outcome.broken for outcome in first)


def test_runs_have_initial_state_joins_and_idle_partitions_by_lot() -> None:
    met: Counter[str] = Counter()
    for seed in range(60):
        workload = World(seed, KINDS["event-time"]).workload
        assert isinstance(workload, Timed)
        met[type(workload).__name__] += 1
        met["with initial rows"] += bool(workload.initial)
        met["with a rest"] += workload.rest is not None
    assert min(met[kind] for kind in ("Joined", "Windowed", "with initial rows", "with a rest")) > 5, met


def test_a_broken_run_tells_its_last_steps() -> None:
    broken = simulate(planted_seeds()["no commit number"], BUGS["no commit number"])
    assert broken.broken
    lines = broken.trace.splitlines()
    assert len(lines) > 20
    assert f"{broken.turns:5} world" in lines[-1]
    assert broken.broken in lines[-1]
    assert any("commit mid/" in line and "epoch" in line for line in lines)


def test_runs_meet_everything_that_the_protocol_is_for() -> None:
    """Else the runs would prove nothing: every answer is met, and late owners do come."""
    met: Counter[str] = Counter()

    class Counting(MemoryStore):
        def call(self, call: Request[Any]) -> Any:
            answer = super().call(call)
            if isinstance(answer, Answer):
                met[f"{type(call).__name__} {answer}"] += 1
            elif isinstance(answer, Advanced):
                met.update(f"Advance {one}" for one in answer.answers)
            elif isinstance(answer, Claimed | Fetched):
                met[type(answer).__name__] += 1
            return answer

    expected = {
        "Claimed", "Claim STALE", "Commit OK", "Commit DONE", "Commit FENCED", "Append OK", "Append DUP",
        "Append GAP", "Append BUSY", "Acknowledge OK", "Publish STALE", "Enroll STALE", "SetTasks STALE",
        "Load FENCED", "Create EXISTS", "Claim MOVING", "Append MOVING", "Freeze STALE", "Export STALE",
        "Install STALE", "Depart DONE", "Activate DONE", "Drop MORE", "Thaw OK", "Discard OK",
        "Append FULL", "Advance OK", "Advance BUSY", "Advance FENCED", "TakeFacts OK",
    }  # fmt: skip
    kinds = (
        (150, Parts(store=Counting)),
        (150, Parts(store=Counting, moves=True)),
        (40, Parts(store=Counting, pressure=True)),
        (25, Parts(store=Counting, moves=True, event_time=True)),
    )
    # One of each kind in turn, until all is met.
    for seed in range(max(count for count, _ in kinds)):
        for count, parts in kinds:
            if seed < count:
                simulate(seed, parts)
        if expected <= met.keys():
            return
    pytest.fail(f"never met: {expected - met.keys()}")
