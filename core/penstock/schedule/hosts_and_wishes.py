"""What the planner is asked with: the workers that there are, what is wanted of each operator, and what the
runtime is like. Values only; `planner` has the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from penstock.schedule.record import StorePlace, WorkerPlace


class Manner(StrEnum):
    """How an operator's executors are treated that there are already. A first schedule is always spread."""

    SPREAD = "spread"
    """Tasks go over all hosts, one executor on each that has some; shards follow the tasks."""
    RELOCATE = "relocate"
    """Another decider says which executors there are and what each runs. One whose worker goes is made anew,
    whole, on another one, and other numbers of tasks are other numbers of executors."""
    TAKE_OVER = "take over"
    """Executors stay. What a lost worker ran is taken over by those that run already, as far as hosts have
    room for its tasks; only a host that takes a share is given shards of the living."""


@dataclass(frozen=True, slots=True)
class Host:
    """A worker that runs executors. `task_room` is how many tasks it may run; an operator that is spread or
    relocated has one task somewhere even where no room is left. `is_pinned`: it keeps what it has, and is
    given nothing."""

    place: WorkerPlace
    store: StorePlace
    task_room: int
    is_pinned: bool = False
    takes_share: bool = False
    """It is back, or new: operators whose executors stay (`TAKE_OVER`) give it its share."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One operator: all of its shards (those that are new too), and tasks over all hosts. `is_held`: tasks
    stay 0 although there is work."""

    operator: str
    shards: tuple[str, ...]
    tasks: int
    is_held: bool = False
    is_source: bool = False
    manner: Manner = Manner.SPREAD
    is_treated: bool = False
    """Another decider is at it: executors that have no shards yet stay."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """In what the two runtimes differ for a plan."""

    has_agents: bool
    """Each store has an agent, which makes the shards that are born there and finds other stores by the
    schedule. Without agents whoever plans has made the shards, in a store that everybody knows."""
    names_idle_workers: bool
    """A worker enrols by its name in the schedules, executors or not, and stays named until it leaves."""


CLUSTER = Runtime(has_agents=True, names_idle_workers=False)
ONE_MACHINE = Runtime(has_agents=False, names_idle_workers=True)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all operators of one plan have in common. `hosts` by name; `unborn` shards stay where they are."""

    hosts: Mapping[str, Host]
    unborn: frozenset[str]
    runtime: Runtime
