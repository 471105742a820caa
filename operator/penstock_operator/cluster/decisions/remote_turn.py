"""What a turn does about remote tasks: where its Schedules say they run, and the pods that run them.

Pure. Neighbours: `remote_workers` decides, `decide` calls this when it knows all else that it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote, remote_of, with_remote
from penstock_operator.cluster.decisions.actions import (
    ApplyNetworkPolicy,
    CreatePod,
    DeletePod,
    Event,
    ResizePod,
    WriteSchedule,
)
from penstock_operator.cluster.decisions.turn import Turn
from penstock_operator.cluster.manifests.spark_network_policies import spark_network_policies
from penstock_operator.cluster.manifests.spark_worker_pod import spark_worker_pod
from penstock_operator.cluster.manifests.worker_pod import WorkerPod
from penstock_operator.cluster.workers.remote_workers import (
    NewSparkWorker,
    RemoteScene,
    SparkWorkerPlan,
    all_removed,
    place,
    shortage,
    spark_workers,
)

Write = Callable[[OperatorSchedule, str | None], WriteSchedule]


def keep_remote_tasks(turn: Turn, write: Write) -> None:
    """Schedules that are written get their remote tasks; those in which nothing else is new are written for
    them when nothing is under way. Pods follow what the Schedules then say."""
    if not (turn.plan.remote_tasks or turn.remote_before or turn.observed.spark_workers):
        return
    written = {a.schedule.operator: a.schedule for a in turn.actions if isinstance(a, WriteSchedule)}
    scene = turn.remote_scene({**turn.schedules, **written}.values())
    remote: Remote = {}
    if turn.plan.remote_tasks and not turn.is_finished and not turn.is_at_rest:
        remote = place(scene)
        turn.found.missing_room = turn.found.missing_room or shortage(scene, remote)
    remote = _write_all(turn, remote, write)
    _tell(turn, scene, remote)
    if turn.is_finished:
        _carry_out(turn, all_removed(scene.pods, "all input is worked off"))
    elif turn.is_at_rest and not remote:
        _carry_out(turn, all_removed(scene.pods, "the topology is paused"))
    else:
        _carry_out(turn, spark_workers(scene, remote, turn.since))


def _write_all(turn: Turn, remote: Remote, write: Write) -> Remote:
    """Answers what the Schedules will say."""
    for at, action in enumerate(turn.actions):
        if isinstance(action, WriteSchedule):
            schedule = with_remote(action.schedule, remote)
            if schedule != action.schedule:
                turn.actions[at] = write(schedule, action.resource_version)
    written = [action.schedule for action in turn.actions if isinstance(action, WriteSchedule)]
    done = {schedule.operator for schedule in written}
    may_change = turn.settled.may_change and not turn.is_finished
    kept: dict[str, tuple[tuple[str, int], ...]] = {}
    for seen in turn.observed.schedules:
        if seen.schedule.operator in done:
            continue
        old = with_remote(seen.schedule, seen.remote)
        new = with_remote(seen.schedule, remote)
        if new != old and may_change:
            new = replace(new, version=old.version + 1, term=turn.observed.term)
            turn.actions.append(write(new, seen.resource_version))
            written.append(new)
        else:
            kept |= seen.remote
    return {**kept, **remote_of(written)}


def _tell(turn: Turn, scene: RemoteScene, remote: Remote) -> None:
    """How many tasks are remote, where that is another number than before."""
    before, now = scene.tasks(turn.remote_before), scene.tasks(remote)
    for worker, node in sorted(before.keys() | now.keys()):
        count = now.get((worker, node), 0)
        if count == before.get((worker, node), 0):
            continue
        home = next((one.node for one in turn.workers if one.name == worker), "")
        told = f"worker {worker}, on node {home}, has {count} remote tasks on node {node}"
        turn.events.append(Event("Normal", "RemoteTasks", told))


def _carry_out(turn: Turn, plan: SparkWorkerPlan) -> None:
    for new in plan.make:
        _make(turn, new)
    for pod, request_millis in plan.resize:
        turn.resizes.append(ResizePod(pod.name, pod.uid, request_millis, turn.limit_millis))
    for pod, why in plan.remove:
        turn.deletions.append(DeletePod(pod.name, pod.uid, why))
        told = f"Spark worker {pod.name} is removed: {why}"
        turn.events.append(Event("Normal", "SparkWorkerRemoved", told))
    turn.found.spark_workers_wait_for = "; ".join(
        f"Spark worker {pod.name} does not run yet ({pod.reason or pod.phase}) {pod.message}".rstrip()
        for pod in plan.waiting
    )


def _make(turn: Turn, new: NewSparkWorker) -> None:
    name, uid = turn.topology.metadata.name, turn.observed.topology.uid
    if turn.config.network_policies:
        for policy in spark_network_policies(new.home, name, turn.config):
            turn.actions.append(ApplyNetworkPolicy(policy["metadata"]["name"], policy))
    place_of = WorkerPod(
        new.name,
        new.node.name,
        new.node.hostname or new.node.name,
        new.cpu_request_millis,
        turn.limit_millis,
    )
    document = spark_worker_pod(
        place_of, new.home, turn.topology, uid, turn.state.uid, turn.template, turn.config
    )
    turn.actions.append(CreatePod(new.name, document))
