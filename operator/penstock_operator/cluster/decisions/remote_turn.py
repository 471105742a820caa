"""What a turn does about remote tasks: where its Schedules say they run, and the pods that run them.

Pure. Neighbours: `remote_workers` decides, `decide` asks when it knows all else that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.schedule.book import ScheduleBook
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote
from penstock_operator.cluster.decisions.actions import (
    ApplyNetworkPolicy,
    CreatePod,
    DeletePod,
    Event,
    ResizePod,
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


def place_remote_tasks(turn: Turn, schedules: Iterable[OperatorSchedule], before: Remote) -> Remote:
    """Where tasks of `schedules` run, these as they will be. What is written gets the remote tasks that there
    should be; the others keep theirs as they were `before` while something is under way."""
    schedules = tuple(schedules)
    wanted: Remote = {}
    if turn.plan.remote_tasks and not turn.is_finished and not turn.is_at_rest:
        scene = turn.remote_scene(schedules)
        wanted = place(scene)
        turn.found.missing_room = turn.found.missing_room or shortage(scene, wanted)
    if turn.settled.may_change and not turn.is_finished:
        return wanted
    writing = {*turn.changes, *turn.anew}
    kept = {e.name for schedule in schedules if schedule.operator not in writing for e in schedule.executors}
    stay = {executor: nodes for executor, nodes in before.items() if executor in kept}
    return stay | {executor: nodes for executor, nodes in wanted.items() if executor not in kept}


def keep_remote_tasks(turn: Turn, book: ScheduleBook) -> None:
    """Pods follow what the Schedules say once all is written."""
    if not (turn.plan.remote_tasks or turn.book.remote or turn.observed.spark_workers):
        return
    scene, remote = turn.remote_scene(book.schedules.values()), book.remote
    _tell(turn, scene, remote)
    if turn.is_finished:
        _carry_out(turn, all_removed(scene.pods, "all input is worked off"))
    elif turn.is_at_rest and not remote:
        _carry_out(turn, all_removed(scene.pods, "the topology is paused"))
    else:
        _carry_out(turn, spark_workers(scene, remote, turn.since))


def _tell(turn: Turn, scene: RemoteScene, remote: Remote) -> None:
    """How many tasks are remote, where that is another number than before."""
    before, now = scene.tasks(turn.book.remote), scene.tasks(remote)
    for worker, node in sorted(before.keys() | now.keys()):
        count = now.get((worker, node), 0)
        if count == before.get((worker, node), 0):
            continue
        home = next((one.node for one in turn.workers if one.name == worker), "")
        told = f"worker {worker}, on node {home}, has {count} remote tasks on node {node}"
        turn.events.append(Event("Normal", "RemoteTasks", told))


def _carry_out(turn: Turn, plan: SparkWorkerPlan) -> None:
    for new in plan.make:
        if not turn.is_refused(new.name):
            _make(turn, new)
    for pod, request_millis in plan.resize:
        if not turn.is_refused(pod.name):
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
        for policy in spark_network_policies(new.home, name, turn.observed.namespace, turn.config):
            turn.actions.append(ApplyNetworkPolicy(policy["metadata"]["name"], policy))
    place_of = WorkerPod(
        new.name,
        new.node.name,
        new.node.hostname or new.node.name,
        new.cpu_request_millis,
        turn.limit_millis,
    )
    document = spark_worker_pod(
        place_of,
        new.home,
        turn.topology,
        uid,
        turn.state.uid,
        turn.template,
        turn.config,
        own_user=turn.observed.own_users,
    )
    turn.actions.append(CreatePod(new.name, document))
