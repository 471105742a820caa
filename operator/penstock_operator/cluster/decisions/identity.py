"""What a topology's state goes by: which uid, and whether a retained one fits.

With deletionPolicy Retain the Schedules outlive their Topology, and the next one of its name goes on with
their uid, if its operators are the same in everything that state, inboxes and positions depend on
(`penstock.dataflow.identity`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.dataflow.identity import stage_digest
from penstock.dataflow.plan import Plan, Stage
from penstock_operator.cluster.kubernetes_api.names import short_hash
from penstock_operator.cluster.observing.observed import ObservedSchedule, ObservedTopology


@dataclass(frozen=True, slots=True)
class StateIdentity:
    """`uid` goes into every store. `problem` says why the topology cannot go on yet, or at all; `reason` is
    its word."""

    uid: str
    problem: str = ""
    reason: str = ""


def stage_identity(stage: Stage) -> str:
    """What a Schedule says of its operator: another one where state cannot be gone on with."""
    return short_hash(stage_digest(stage))


def state_identity(
    topology: ObservedTopology, plan: Plan, schedules: Sequence[ObservedSchedule]
) -> StateIdentity:
    """The uid that the state of `topology` goes by, given the Schedules of its name."""
    former = [s for s in schedules if s.is_deleting or s.owner_uid not in ("", topology.uid)]
    if former:
        names = ", ".join(seen.name for seen in former)
        told = f"what an earlier Topology of this name left is still being removed: Schedules {names}"
        return StateIdentity(topology.uid, told, "FormerTopologyLeaving")
    uids = {seen.topology_uid for seen in schedules}
    if len(uids) > 1:
        told = "its Schedules are of two topologies; delete those that should not be there"
        return StateIdentity(topology.uid, told, "RetainedStateDiffers")
    uid = next(iter(uids), _uid_before(topology) or topology.uid)
    problems = _differences(plan, schedules) if uid != topology.uid else []
    if problems:
        told = (
            f"the state that was retained is of another topology: {'; '.join(problems)}. "
            "Apply that topology again, or discard the state: annotate its Schedules with "
            "penstock.dev/discard-state=true and delete them"
        )
        return StateIdentity(uid, told, "RetainedStateDiffers")
    return StateIdentity(uid)


def begun_operators(topology: ObservedTopology, former: Mapping[str, Any]) -> tuple[str, ...]:
    """Operators that have had a Schedule, as the Topology's status has it, or that which was decided last:
    what is read back may be older. One of an earlier Topology of this name does not count."""
    status = topology.manifest.get("status") or {}
    uids = {topology.uid, status.get("stateUid")}
    told = [status, former if former.get("stateUid") in uids else {}]
    return tuple(sorted({str(name) for one in told for name in one.get("begun") or ()}))


def _uid_before(topology: ObservedTopology) -> str:
    """What its state went by while it had Schedules; "" when it has had none."""
    status = topology.manifest.get("status") or {}
    return str(status.get("stateUid") or "") if status.get("begun") else ""


def _differences(plan: Plan, schedules: Sequence[ObservedSchedule]) -> list[str]:
    kept = {seen.schedule.operator: seen for seen in schedules}
    stages = {stage.operator: stage for stage in plan.stages}
    problems = [f"operator {name} is missing now" for name in sorted(kept.keys() - stages.keys())]
    problems += [
        f"operator {name} has other keys, shards, columns, partitions or sinks"
        for name in sorted(kept.keys() & stages.keys())
        if kept[name].identity not in _identities(stages[name])
    ]
    return problems


def _identities(stage: Stage) -> tuple[str, ...]:
    """Those that it goes on with: also of itself before it had a sink of dead letters."""
    return "", stage_identity(stage), stage_identity(replace(stage, dead_letters=None))
