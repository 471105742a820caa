"""Whoever is killed or stopped at whatever step of a move: one owner at the end, and exact totals.

Every durable step of a move between nodes, times every component that has to do with it, times SIGKILL and
SIGSTOP (continued later). The step is held by a gate in the source's agent and awaited in the stores'
records. Beside it other shards move within their node and between nodes. A run takes a part of all cases,
drawn by PENSTOCK_KILLS_SEED (default 0); PENSTOCK_KILLS=all, or `make test-kills`, takes all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pytest

from clocks.eventually import eventually
from processes.gated_agent import Step
from scenes.kill_scene import NODES, TARGETS, WORKERS, KillScene, let_pass

pytestmark = pytest.mark.integration

CASES_PER_STEP = 3
STOPPED_S = 0.6
ZOMBIE_STOPPED_S = 2.5
"""Longer than the delayed kill of a worker."""


class Component(StrEnum):
    SOURCE_AGENT = "source agent"
    TARGET_AGENT = "target agent"
    SOURCE_STORE = "source store"
    TARGET_STORE = "target store"
    OLD_EXECUTOR = "old executor"
    NEW_EXECUTOR = "new executor"


class Strike(StrEnum):
    KILL = "killed"
    STOP = "stopped"


@dataclass(frozen=True, slots=True)
class Case:
    step: Step
    component: Component
    strike: Strike

    def __str__(self) -> str:
        return f"{self.step}-{self.component}-{self.strike}"


def drawn(seed: int) -> list[Case]:
    """Some cases of each step; each component is struck in both ways within two steps or so."""
    rng = random.Random(seed)
    cases: list[Case] = []
    pairs: list[tuple[Component, Strike]] = []
    for step in Step:
        for _ in range(CASES_PER_STEP):
            if not pairs:
                pairs = [(component, strike) for component in Component for strike in Strike]
                rng.shuffle(pairs)
            cases.append(Case(step, *pairs.pop()))
    return cases


ALL_CASES = [Case(step, component, strike) for step in Step for component in Component for strike in Strike]
SEED = int(os.environ.get("PENSTOCK_KILLS_SEED", "0"))
CASES = ALL_CASES if os.environ.get("PENSTOCK_KILLS") == "all" else drawn(SEED)


class Process(Protocol):
    def start(self) -> None: ...
    def kill(self, number: int = ..., *, wait: bool = ...) -> None: ...


class Standing:
    """One scene for all cases; after one that failed, a new one."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._scene: KillScene | None = None
        self._numbers = iter(range(len(ALL_CASES) * 2))

    @contextmanager
    def scene(self) -> Iterator[tuple[KillScene, int]]:
        if self._scene is None:
            self._scene = KillScene(self._tmp_path_factory.mktemp("kills"))
            self._scene.start()
        try:
            yield self._scene, next(self._numbers)
        except BaseException:
            sys.stdout.write(self._scene.describe())
            self.stop()
            raise

    def stop(self) -> None:
        if self._scene is not None:
            scene, self._scene = self._scene, None
            scene.stop()


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    standing = Standing(tmp_path_factory)
    yield standing
    standing.stop()


def begin_move(scene: KillScene, number: int) -> tuple[str, str, str]:
    """Publish a move of a shard to a worker of the other node, and of another shard to wherever.

    Answers the shard, and the workers that it leaves and comes to.
    """
    rng = random.Random(number)
    shard = TARGETS["mid"][number % 4]
    old = scene.places[shard]
    new = rng.choice([worker for worker, node in WORKERS.items() if node != scene.home(shard)])
    scene.give(shard, to=new)
    scene.give(rng.choice(["src/0", "src/1", *TARGETS["end"]]), to=rng.choice(list(WORKERS)))
    scene.publish()
    return shard, old, new


def component_of(scene: KillScene, component: Component, old: str, new: str) -> Process:
    source, target = WORKERS[old], WORKERS[new]
    components: dict[Component, Process] = {
        Component.SOURCE_AGENT: scene.agents[source],
        Component.TARGET_AGENT: scene.agents[target],
        Component.SOURCE_STORE: scene.servers[source],
        Component.TARGET_STORE: scene.servers[target],
        Component.OLD_EXECUTOR: scene.workers[old],
        Component.NEW_EXECUTOR: scene.workers[new],
    }
    return components[component]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_move_ends_with_one_owner_and_exact_totals_whoever_is_struck_at_whatever_step(
    standing: Standing, case: Case
) -> None:
    with standing.scene() as (scene, number):
        source = scene.home(TARGETS["mid"][number % 4])
        with scene.held_at(case.step, TARGETS["mid"][number % 4], source):
            shard, old, new = begin_move(scene, number)
            scene.wait_recorded(case.step, shard, source)
            struck = component_of(scene, case.component, old, new)
            if case.strike is Strike.KILL:
                struck.kill()
            else:
                struck.kill(signal.SIGSTOP, wait=False)
        if case.strike is Strike.KILL:
            struck.start()
        else:
            let_pass(STOPPED_S)
            struck.kill(signal.SIGCONT, wait=False)
        scene.wait_at_home()
        scene.settle()


@pytest.mark.parametrize("step", Step, ids=str)
def test_a_move_goes_on_to_its_end_while_there_is_neither_operator_nor_api_server(
    standing: Standing, step: Step
) -> None:
    """An operator does nothing but by the API server."""
    with standing.scene() as (scene, number):
        shard = TARGETS["mid"][number % 4]
        source = scene.home(shard)
        with scene.held_at(step, shard, source):
            scene.give(shard, to=next(worker for worker, node in WORKERS.items() if node != source))
            scene.publish()
            scene.wait_applied()
            scene.wait_recorded(step, shard, source)
            scene.api.go_away()
        try:
            scene.wait_at_home()
        finally:
            scene.api.come_back()
        scene.settle()


@pytest.mark.parametrize("new", ["the node's other worker", "a worker of another node"])
def test_an_owner_that_was_stopped_for_longer_than_the_delayed_kill_commits_nothing(
    standing: Standing, new: str
) -> None:
    """It is stopped with a batch in hand, ready to be committed."""
    with standing.scene() as (scene, _):
        shard = "mid/0"
        old = scene.places[shard]
        beside = new == "the node's other worker"
        heir = next(w for w, n in WORKERS.items() if (n == scene.home(shard)) is beside and w != old)
        scene.give("src/0", "src/1", to=heir)
        scene.publish()
        scene.wait_at_home()
        zombie = scene.workers[old]
        before = len(zombie.journal())

        def answers() -> list[str]:
            """What it was told of the shard; it may lose others meanwhile that went to another worker."""
            return [line for line in zombie.journal()[before:] if f" {shard}:" in line]

        hold = scene.folder / f"hold-{old}"
        (scene.folder / f"held-{old}").unlink(missing_ok=True)
        hold.write_text(shard)
        eventually((scene.folder / f"held-{old}").exists, "the owner has a batch in hand")
        zombie.kill(signal.SIGSTOP, wait=False)
        scene.give(shard, to=heir)
        scene.publish()
        eventually(lambda: scene.owner(shard) == f"mid-{heir}", "the new owner has it")
        let_pass(ZOMBIE_STOPPED_S)
        committed = scene.commits(shard)
        eventually(lambda: scene.commits(shard) > committed, "the new owner works")
        hold.unlink()
        zombie.kill(signal.SIGCONT, wait=False)
        eventually(lambda: bool(answers()), "the zombie's commit is answered")
        assert answers()[0] == f"loss {shard}: FENCED"
        assert scene.owner(shard) == f"mid-{heir}"
        scene.wait_at_home()
        scene.settle()


def test_every_case_is_drawn_by_some_seed() -> None:
    assert {str(case) for seed in range(40) for case in drawn(seed)} == {str(case) for case in ALL_CASES}
    assert len(drawn(0)) == CASES_PER_STEP * len(Step)
    assert set(NODES) == set(WORKERS.values())
