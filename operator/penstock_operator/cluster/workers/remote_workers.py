"""Remote tasks of a topology: which of its tasks run on other nodes, and the Spark worker pods that run them.

Only where a worker's node has no cores left: `elasticutor.remote_tasks` splits the tasks, here it is told the
room. A pod is made when a Schedule has remote tasks there, resized with their number, and removed when there
have been none for a while, or when it cannot run them. Pure. Neighbours: `remote_turn` calls; `node_room` has
the nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.control.elasticutor.remote_tasks import Room, place_remote
from penstock.schedule.record import OperatorSchedule
from penstock.schedule.remote import Remote
from penstock.supervision.beside import Beside, why_it_leaves
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker, WorkerState
from penstock_operator.cluster.kubernetes_api.names import LABEL_HOME_UID, LABEL_WORKER, spark_worker_name
from penstock_operator.cluster.manifests.spark_worker_pod import Home
from penstock_operator.cluster.observing.observed import ObservedNode, ObservedPod, Resize
from penstock_operator.cluster.workers.misplaced_pods import UNSCHEDULABLE_GRACE_S, avoids
from penstock_operator.cluster.workers.node_room import NodeRooms, Size
from penstock_operator.cluster.workers.pods import ENDED, ending_of
from penstock_operator.cluster.workers.room_advice import Asked, advice


@dataclass(frozen=True, slots=True)
class Cores:
    """How a topology's cores are counted: `request_millis` is what so many tasks ask of a worker's pod."""

    request_millis: Callable[[int], int]
    task_millis: int
    limit_millis: int
    tasks_per_worker: int
    memory_bytes: int

    def of_spark_worker(self, tasks: int) -> Size:
        """Below the limit always, as of a worker (`manifests.worker_pod`)."""
        cpu_millis = max(1, min(tasks * self.task_millis, self.limit_millis - 1))
        return Size(cpu_millis, self.memory_bytes)


@dataclass(frozen=True, slots=True)
class RemoteScene:
    """What is decided on: Schedules as they will be, the remote tasks that there are (`before`), workers and
    their pods, Spark worker pods (`pods`), and the room beside all of these."""

    schedules: tuple[OperatorSchedule, ...]
    before: Remote
    workers: tuple[Worker, ...]
    worker_pods: Mapping[str, ObservedPod]
    pods: tuple[ObservedPod, ...]
    rooms: NodeRooms
    cores: Cores

    def tasks(self, remote: Remote) -> Mapping[tuple[str, str], int]:
        """(worker, node) -> remote tasks."""
        found = Counter[tuple[str, str]]()
        for schedule in self.schedules:
            for executor in schedule.executors:
                for node, count in remote.get(executor.name, ()):
                    found[executor.worker, node] += count
        return found


# --- which tasks ------------------------------------------------------------------------------------


def place(scene: RemoteScene) -> Remote:
    """The remote tasks that there should be, by the room that there is now."""
    own = _own_room(scene)
    node_of = {worker.name: worker.node for worker in scene.workers}
    return place_remote(
        scene.schedules, scene.before, Room(own, node_of, _beside(scene, _growth(scene, own)))
    )


def room_beside(scene: RemoteScene, node: str) -> int:
    """How many remote tasks more a worker of `node` could have."""
    there = Counter[str]()
    for (_, at), count in scene.tasks(scene.before).items():
        there[at] += count
    beside = _beside(scene, Counter())
    return sum(max(0, room - there[at]) for at, room in beside.items() if at != node)


def shortage(scene: RemoteScene, remote: Remote) -> str:
    """In words, for which tasks there are cores neither at home nor elsewhere; "" when there are for all."""
    nodes = {worker.name: worker.node for worker in scene.workers}
    for name, room in sorted(_own_room(scene).items()):
        executors = [
            (executor.tasks - sum(count for _, count in remote.get(executor.name, ())), schedule.is_source)
            for schedule in scene.schedules
            for executor in schedule.executors
            if executor.worker == name
        ]
        missing = sum(at_home for at_home, _ in executors) - room
        if missing > 0 and any(at_home > 1 and not is_source for at_home, is_source in executors):
            one = scene.cores.of_spark_worker(1)
            why = scene.rooms.why_not_beside(nodes[name], one)
            would_fit = advice(
                Asked(one, 1, 1, scene.cores.task_millis, 0), scene.rooms.left_beside(nodes[name])
            )
            return (
                f"node {nodes[name]} has no cores for {missing} of the tasks of worker {name}, "
                f"and no other node takes them: {why}{would_fit and f'; {would_fit}'}"
            )
    return ""


def may_lend(worker: Worker) -> bool:
    """What joins it is made from what it was made from."""
    return worker.state is WorkerState.READY and worker.is_current and not worker.is_leaving


def _own_room(scene: RemoteScene) -> dict[str, int]:
    """Worker -> tasks that its node has cores for. Others than those that may lend are left as they are."""
    own: dict[str, int] = {}
    free = Counter({worker.node: scene.rooms.cpu_free_millis(worker.node) for worker in scene.workers})
    for worker in scene.workers:
        pod = scene.worker_pods.get(worker.name)
        if pod is None or not may_lend(worker):
            continue
        asked = pod.cpu_request_millis
        room = scene.cores.tasks_per_worker
        while room > 1 and scene.cores.request_millis(room) - asked > free[worker.node]:
            room -= 1
        own[worker.name] = room
        free[worker.node] -= _more(scene, worker.name, room, asked)
    return own


def _growth(scene: RemoteScene, own: Mapping[str, int]) -> Counter[str]:
    """Node -> what the workers there will ask for beyond what they do."""
    growth = Counter[str]()
    for worker in scene.workers:
        pod = scene.worker_pods.get(worker.name)
        if pod is not None and worker.name in own:
            growth[worker.node] += _more(scene, worker.name, own[worker.name], pod.cpu_request_millis)
    return growth


def _more(scene: RemoteScene, worker: str, room: int, asked_millis: int) -> int:
    executors = (executor for schedule in scene.schedules for executor in schedule.executors)
    tasks = sum(executor.tasks for executor in executors if executor.worker == worker)
    return max(0, scene.cores.request_millis(min(room, tasks)) - asked_millis)


def _beside(scene: RemoteScene, growth: Counter[str]) -> dict[str, int]:
    """Node -> remote tasks that it has cores for, with those that are there. Where no further pod would go,
    those do that have one."""
    asked = Counter[str]()
    joined: dict[str, set[str]] = {}
    for pod in scene.pods:
        if not pod.is_bound or pod.phase in ENDED:
            continue
        # What one that is on its way out has will be there for the next one.
        asked[pod.node] += pod.cpu_request_millis
        if pod.deletion_timestamp is None:
            joined.setdefault(pod.node, set()).add(pod.labels.get(LABEL_WORKER, ""))
    beside = {}
    for node in scene.rooms.spark_nodes():
        free = scene.rooms.cpu_free_millis(node) - growth[node]
        room = max(0, free + asked[node]) // scene.cores.task_millis
        if not scene.rooms.has_room_on(node, scene.cores.of_spark_worker(1)):
            lenders = {worker.name for worker in scene.workers if worker.node != node and may_lend(worker)}
            if not lenders <= joined.get(node, set()):
                room = min(room, asked[node] // scene.cores.task_millis)
        beside[node] = room
    return beside


# --- which pods -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewSparkWorker:
    name: str
    node: ObservedNode
    cpu_request_millis: int
    home: Home


@dataclass(frozen=True, slots=True)
class SparkWorkerPlan:
    """What to do about pods: make these, have these ask for so many thousandths of a core, remove these for a
    reason. `waiting` are those that are wanted and do not run."""

    make: tuple[NewSparkWorker, ...] = ()
    resize: tuple[tuple[ObservedPod, int], ...] = ()
    remove: tuple[tuple[ObservedPod, str], ...] = ()
    waiting: tuple[ObservedPod, ...] = ()


def spark_workers(scene: RemoteScene, remote: Remote, since: SinceWhen) -> SparkWorkerPlan:
    """The pods for `remote`. Those that are to be made take their room at once."""
    homes = {w.name: w for w in scene.workers if w.is_there and not w.is_leaving}
    wanted = {spark_worker_name(*of): (of, tasks) for of, tasks in scene.tasks(remote).items()}
    resize: list[tuple[ObservedPod, int]] = []
    remove: list[tuple[ObservedPod, str]] = []
    waiting: list[ObservedPod] = []
    for pod in _staying(scene.pods):
        tasks = wanted[pod.name][1] if pod.name in wanted else 0
        why = _why_gone(pod, homes, tasks, since)
        request = scene.cores.of_spark_worker(tasks).cpu_millis
        if why:
            remove.append((pod, why))
        elif tasks and (pod.cpu_request_millis, pod.cpu_limit_millis) != (request, scene.cores.limit_millis):
            resize.append((pod, request))
        if tasks and not why and not pod.ready:
            waiting.append(pod)
    there = {pod.name for pod in scene.pods}
    make = _made(scene, homes, {name: of for name, of in sorted(wanted.items()) if name not in there})
    return SparkWorkerPlan(make, tuple(resize), tuple(remove), tuple(waiting))


def all_removed(pods: Iterable[ObservedPod], why: str) -> SparkWorkerPlan:
    """None is wanted any more."""
    return SparkWorkerPlan(remove=tuple((pod, why) for pod in _staying(pods)))


def _staying(pods: Iterable[ObservedPod]) -> list[ObservedPod]:
    return [pod for pod in pods if pod.deletion_timestamp is None]


def _made(
    scene: RemoteScene, homes: Mapping[str, Worker], missing: Mapping[str, tuple[tuple[str, str], int]]
) -> tuple[NewSparkWorker, ...]:
    made = []
    for name, ((worker, node), tasks) in missing.items():
        home, pod = homes.get(worker), scene.worker_pods.get(worker)
        if home is None or pod is None or not pod.host or not may_lend(home):
            continue
        size = scene.cores.of_spark_worker(tasks)
        found = scene.rooms.take_on(node, size)
        if found is not None:
            place_of = Home(worker, home.uid, home.store, pod.host)
            made.append(NewSparkWorker(name, found, size.cpu_millis, place_of))
    return tuple(made)


def _why_gone(pod: ObservedPod, homes: Mapping[str, Worker], tasks: int, since: SinceWhen) -> str:
    """Why it leaves, "" while it stays; a node that does not take it is avoided for a while."""
    home = homes.get(pod.labels.get(LABEL_WORKER, ""))
    beside = Beside(pod.uid, pod.labels.get(LABEL_HOME_UID, ""), tasks, ending_of(pod))
    if why := why_it_leaves(beside, home.uid if home is not None else "", since):
        return why
    is_refused = not pod.is_bound and pod.reason == "Unschedulable"
    if is_refused and since.lasts_s(f"unschedulable:{pod.uid}") >= UNSCHEDULABLE_GRACE_S:
        since.mark(avoids(pod.node))
        return f"node {pod.node} does not take it: {pod.message}"
    if pod.resize in (Resize.INFEASIBLE, Resize.ERROR):
        since.mark(avoids(pod.node))
        return f"node {pod.node} cannot give it the cores of its tasks"
    return ""
