"""Schedules that are gone, or older than what the stores work by, although the topology has run.

Where a Schedule existed there is state, so none is ever begun anew: it is rebuilt from what the stores know,
once all of them have answered; or nothing is touched, and the status says what is waited for. That it existed
is known from the Topology's status, and from the stores. Pure. Neighbours: `decide` asks before all else;
`penstock.schedule.rebuilding` rebuilds one, `kept_schedules` reads what stores know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.dataflow.plan import Plan
from penstock.schedule.rebuilding import NOTHING_KEPT, Kept, Rebuilt, rebuilt
from penstock.schedule.record import AppliedPlace
from penstock.schedule.remote import remote_of, with_remote
from penstock_operator.cluster.kubernetes_api.names import schedule_name
from penstock_operator.cluster.observing.observed import Observed, ObservedSchedule


@dataclass(frozen=True, slots=True)
class Recovery:
    """`schedules` are those that stand and those that were rebuilt, whose operators are `anew`: these are to
    be written. `told` says so. `problem` says why nothing may be done yet, with its `reason`. `unheard` are
    stores that are there and have not said whether they know anything of a Schedule that none is known of."""

    schedules: tuple[ObservedSchedule, ...]
    anew: tuple[str, ...] = ()
    told: str = ""
    problem: str = ""
    reason: str = ""
    unheard: tuple[str, ...] = ()


def recovery_of(observed: Observed, plan: Plan, state_uid: str, begun: Collection[str]) -> Recovery:
    """`begun` are the operators that have had a Schedule, as the Topology's status has it."""
    topology = observed.topology
    seen = {one.schedule.operator: one for one in observed.schedules}
    named = {store.id for one in observed.schedules for store in one.schedule.stores}
    there = sorted(
        store.id
        for store in observed.stores
        # One that finds no place holds nothing, unless it has a volume.
        if not store.is_deleting and (store.id in named or store.has_pvc or not store.finds_no_place)
    )
    silent = [store for store in there if observed.kept.get(store) is None]
    schedules, anew, told, waiting, lost = dict(seen), list[str](), list[str](), list[str](), list[str]()
    unheard: tuple[str, ...] = ()
    for operator in (stage.operator for stage in plan.stages):
        kept = _kept_of(observed, operator)
        newest, stands = rebuilt(kept), seen.get(operator)
        name = schedule_name(topology.name, operator)
        if stands is not None and not _is_outdated(stands, kept):
            continue
        is_known = stands is not None or operator in begun or any(one.version for one in kept.values())
        if not is_known:
            ready = {store.id for store in observed.stores if store.ready}
            unheard = tuple(store for store in silent if store in ready)
        elif silent:
            waiting.append(name)
        elif newest is None:
            lost.append(name)
        else:
            anew.append(operator)
            schedules[operator] = _seen_again(name, newest, stands, topology.uid, state_uid)
            how = "is gone" if stands is None else f"is of version {stands.schedule.version}"
            told.append(
                f"Schedule {name} {how}; it goes on from version {newest.schedule.version}, "
                f"as the stores of {', '.join(newest.keepers)} know it"
            )
    problem, reason = _problem(waiting, lost, silent)
    return Recovery(
        tuple(schedules[operator] for operator in sorted(schedules)),
        tuple(anew),
        "; ".join(told),
        problem,
        reason,
        unheard,
    )


def newer_in_stores(
    schedules: Sequence[ObservedSchedule], kept: Mapping[str, Mapping[str, Kept] | None]
) -> bool:
    """Whether a store knows a Schedule in a newer version than it stands in."""
    return any(
        _is_outdated(one, {"": there[one.schedule.operator]})
        for one in schedules
        for there in kept.values()
        if there is not None and one.schedule.operator in there
    )


def _kept_of(observed: Observed, operator: str) -> dict[str, Kept]:
    return {
        store: there.get(operator, NOTHING_KEPT)
        for store, there in observed.kept.items()
        if there is not None
    }


def _is_outdated(stands: ObservedSchedule, kept: Mapping[str, Kept]) -> bool:
    return any(one.version > stands.schedule.version for one in kept.values())


def _problem(waiting: Sequence[str], lost: Sequence[str], silent: Sequence[str]) -> tuple[str, str]:
    if waiting:
        told = f"Schedule {', '.join(waiting)} is gone, or older than what the stores work by; it is rebuilt"
        return f"{told} from what they know once those of {', '.join(silent)} answer too", "ScheduleMissing"
    if lost:
        told = f"Schedule {', '.join(lost)} is gone, and no store knows it any more: the state is lost"
        return f"{told}; delete the Topology and apply it anew to begin from nothing", "ScheduleLost"
    return "", ""


def _seen_again(
    name: str, found: Rebuilt, stands: ObservedSchedule | None, topology_uid: str, state_uid: str
) -> ObservedSchedule:
    """What was rebuilt, as if it stood. It is created where nothing stands, else replaced."""
    applied = tuple(AppliedPlace(node, version, 0) for node, version in sorted(found.applied.items()))
    remote = remote_of([found.schedule])
    schedule = with_remote(found.schedule, {})
    if stands is not None:
        return replace(stands, schedule=schedule, remote=remote, applied=applied, seen_by_stores=found.seen)
    return ObservedSchedule(
        name=name,
        uid="",
        resource_version="",
        topology_uid=state_uid,
        schedule=schedule,
        applied=applied,
        owner_uid=topology_uid,
        remote=remote,
        seen_by_stores=found.seen,
    )
