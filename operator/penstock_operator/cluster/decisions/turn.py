"""One look at a topology as a decision needs it: what is there, what is wanted, and what comes up on the way.

Pure. Neighbours: `decide` fills it with actions, `verdict` and `leeway_for_slas` read it at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from zlib import crc32

from penstock.api.topology import Topology
from penstock.dataflow.plan import Plan
from penstock.manifest.document import cpu_millis, memory_bytes
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock.supervision.hosts import Group
from penstock.supervision.settled import Settling
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import WorkerState
from penstock_operator.cluster.decisions.actions import Action, DeleteConfigMap, DeletePod, Event
from penstock_operator.cluster.decisions.identity import StateIdentity
from penstock_operator.cluster.decisions.losses import losses_of
from penstock_operator.cluster.decisions.quota import quota_finding
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.decisions.schedule_writing import book_of
from penstock_operator.cluster.decisions.sla_leeway import SlaHost
from penstock_operator.cluster.decisions.status import former_status
from penstock_operator.cluster.kubernetes_api.names import ANNOTATION_ASKED
from penstock_operator.cluster.manifests.template import template_hash
from penstock_operator.cluster.manifests.worker_pod import worker_image
from penstock_operator.cluster.observing.observed import Need, Observed
from penstock_operator.cluster.workers.demand import backlog, wishes
from penstock_operator.cluster.workers.misplaced_pods import avoids
from penstock_operator.cluster.workers.node_room import NodeRooms, PlacementRules, Size, served_before
from penstock_operator.cluster.workers.pods import judge_workers, worker_place
from penstock_operator.cluster.workers.remote_workers import Cores, RemoteScene, room_beside
from penstock_operator.cluster.workers.room_advice import Asked
from penstock_operator.cluster.workers.schedule_decisions import settling_of

FEWER_WORKERS_AFTER_S = 60.0
"""So long a LatencySLA must have done with fewer workers before one hands over its work."""
AVOID_S = 60.0
"""So long a node that did not take a pod is the last choice."""
ASKED_S = 600.0
"""So long at most a finished topology keeps a worker for who asks about it."""


@dataclass(slots=True)
class Found:
    """What comes up while the groups are decided, and ends up in the status."""

    treatments: list[tuple[str, str]] = field(default_factory=list)
    """(reason, sentence)"""
    missing_room: str = ""
    need: Need | None = None
    is_handing_over: bool = False
    is_changing: bool = False
    """Schedules are being written."""
    waits_for: str = ""
    spark_workers_wait_for: str = ""
    unheard: tuple[str, ...] = ()
    """Stores that have yet to say whether they know of earlier Schedules: no first ones are made."""
    begun: dict[str, int] = field(default_factory=dict)
    """Operator -> shards that a schedule written now gives another home."""


class Turn:
    """What one call of `decide` works with, and the actions as they gather."""

    def __init__(
        self,
        observed: Observed,
        memory: Memory,
        now_s: float,
        topology: Topology,
        plan: Plan,
        state: StateIdentity,
    ) -> None:
        self.observed = observed
        self.memory = memory
        self.now_s = now_s
        self.topology = topology
        self.plan = plan
        self.state = state
        self.config = observed.config
        self.since = SinceWhen(memory.since_s, now_s)
        self.schedules: dict[str, OperatorSchedule] = {
            entry.schedule.operator: entry.schedule for entry in observed.schedules
        }
        self.book = book_of(observed.schedules)
        self.image = worker_image(topology, self.config)
        self.code_missing = (
            topology.spec.code is not None
            and topology.spec.code.config_map is not None
            and observed.code is None
        )
        self.template = template_hash(
            topology, self.image, observed.code, state.uid, own_user=observed.own_users
        )
        self.settled: Settling = settling_of(observed, self.since)
        self.losses = losses_of(observed)
        self.rules = PlacementRules(
            topology.spec.pod,
            {**self.config.store.node_selector, **self.config.worker.node_selector},
            self.config.worker.tolerations,
            plan.durability,
        )
        self.workers = judge_workers(
            observed,
            observed.schedules,
            None if self.code_missing else self.template,
            self.since,
            self.rules,
        )
        self.pods = {pod.name: pod for pod in observed.pods}
        self._waiting = {one.name for one in observed.refused if one.waits}
        self.awaited: set[str] = set()
        """Pods that were to be made or resized, and were refused lately or leave room for who goes first."""
        self.former = former_status(observed, memory.status)
        self.quota = quota_finding(
            observed, self.schedules.values(), memory_bytes(topology.spec.store_memory), self.former
        )
        self.wishes = wishes(
            observed,
            plan,
            self.schedules,
            self.since,
            are_sources_held=topology.spec.paused or bool(self.quota.holds),
        )
        self.backlog = backlog(observed, plan, self.schedules)
        self.is_finished = self._finished()
        self.is_asked = self._asked()
        self.task_cpu_millis = cpu_millis(topology.spec.task_cpu)
        self.limit_millis = cpu_millis(topology.spec.workers.cores.max)
        self.tasks_per_worker = max(1, self.limit_millis // self.task_cpu_millis)
        self.memory_bytes = memory_bytes(topology.spec.workers.memory)
        self.rooms = self._rooms()
        self.groups = self._groups()
        self.found = Found()
        self.changes: dict[str, OperatorSchedule] = {}
        """Operator -> its schedule as it is to be: the book writes them, see `schedule_writing`."""
        self.anew: list[str] = []
        """Operators whose Schedule objects are to be written although nothing else is new."""
        self.actions: list[Action] = []
        self.deletions: list[DeletePod | DeleteConfigMap] = []
        self.resizes: list[Action] = []
        self.events: list[Event] = []

    def is_refused(self, pod: str) -> bool:
        """Whether the API server refused the pod lately: it is wanted, and not tried now."""
        if pod in self._waiting:
            self.awaited.add(pod)
        return pod in self._waiting

    # --- what is wanted -------------------------------------------------------------------------

    def _finished(self) -> bool:
        """All input read, nothing waits, seen twice alike; and it stays so while the stores cannot be
        seen."""
        was_finished = self.former.get("phase") == "Finished"
        if self.backlog is None:
            return was_finished and len(self.schedules) == len(self.plan.stages)
        backlog = self.backlog
        if not (backlog.is_empty and backlog.are_sources_finished and backlog.are_watermarks_through):
            return False
        return was_finished or self.memory.backlog == self.backlog.fingerprint

    def _asked(self) -> bool:
        """Whether a topology that is finished has a worker for somebody who asks about it: as long as the
        annotation says so, but not for ever, for who has put it there may be gone."""
        metadata = self.observed.topology.manifest.get("metadata") or {}
        text = (metadata.get("annotations") or {}).get(ANNOTATION_ASKED)
        return self.is_finished and bool(text) and self.since.lasts_s(f"asked:{text}") < ASKED_S

    def _groups(self) -> tuple[Group, ...]:
        spec = self.topology.spec.workers
        operators = [""] if spec.isolation == "Topology" else [s.operator for s in self.plan.stages]
        if self.is_finished:
            one = int(self.is_asked)
            return tuple(Group(operator, 0, one * (not number)) for number, operator in enumerate(operators))
        return tuple(Group(operator, self._hosts_wanted(operator), spec.warm) for operator in operators)

    def _hosts_wanted(self, group: str) -> int:
        """As the Topology says; with a LatencySLA as many as its tasks need, or have been found to need."""
        spec, sla = self.topology.spec.workers, self.observed.sla
        wanted = min(max(spec.initial if spec.initial is not None else spec.min, spec.min), spec.upper)
        own = [s for name, s in self.schedules.items() if group in ("", name)]
        if not any(schedule.operator in sla.limits for schedule in own):
            return wanted
        least, most = max(spec.min, sla.workers_min), min(spec.upper, sla.workers_max)
        # Executors that are only announced, for a worker that is to go, make no host more.
        holders = {place.executor for schedule in own for place in schedule.shards.values()}
        hosts = {e.worker for schedule in own for e in schedule.executors if e.name in holders}
        room = {host.place.name: host.tasks + host.room for host in self.sla_hosts()}
        able = sorted((room.get(name, self.tasks_per_worker) for name in hosts), reverse=True)
        missing, needed = sum(schedule.tasks for schedule in own), 0
        while missing > 0 and needed < len(able):
            missing -= able[needed]
            needed += 1
        needed = max(wanted, needed, len(hosts) + 1 if sla.asks_worker else 0)
        needed = min(max(needed, least), max(least, most))
        if len(hosts) > needed and self.since.lasts_s(f"fewer:{group}") < FEWER_WORKERS_AFTER_S:
            return min(len(hosts), max(needed, spec.upper))
        return needed

    def stages_of(self, group: Group) -> list[str]:
        return [s.operator for s in self.plan.stages if group.operator in ("", s.operator)]

    def _rooms(self) -> NodeRooms:
        staying = [pod for pod in self.observed.pods if pod.deletion_timestamp is None]
        counts = Counter(pod.node for pod in staying)
        going = {worker.name for worker in self.workers if worker.must_go or worker.is_leaving}
        beside = Counter(pod.store for pod in staying if pod.name not in going)
        name = self.observed.title
        created = str((self.observed.topology.manifest.get("metadata") or {}).get("creationTimestamp", ""))
        first = served_before(self.observed.needs, name, self.topology.spec.priority, created)
        avoided = {n.name for n in self.observed.nodes if self.since.recalls(avoids(n.name), AVOID_S)}
        avoided |= {worker.node for worker in self.workers if worker.lacks_cores}
        return NodeRooms(
            self.observed.nodes,
            self.observed.stores,
            self.rules,
            counts,
            first,
            avoided,
            beside,
            crc32(name.encode()),
        )

    def size_for(self, group: Group, *, is_spare: bool = False) -> Size:
        """What a new worker asks for: its part of the group's tasks."""
        return Size(self.request_millis(0 if is_spare else self._share(group)), self.memory_bytes)

    def asked_by(self, group: Group, workers: int, *, is_spare: bool) -> Asked:
        """What so many new workers of the group ask for, and by which fields."""
        return Asked(
            self.size_for(group, is_spare=is_spare),
            workers,
            0 if is_spare else self._share(group),
            self.task_cpu_millis,
            cpu_millis(self.topology.spec.workers.cores.min),
        )

    def _share(self, group: Group) -> int:
        """How many tasks of the group a worker is to have."""
        tasks = sum(
            self.wishes[stage.operator].tasks if stage.operator in self.wishes else stage.tasks.initial
            for stage in self.plan.stages
            if group.operator in ("", stage.operator)
        )
        return -(-tasks // max(1, group.hosts_wanted))

    def request_millis(self, tasks: int) -> int:
        """Below the limit always: see `manifests.worker_pod`."""
        least = cpu_millis(self.topology.spec.workers.cores.min)
        asked = min(max(tasks * self.task_cpu_millis, least), self.limit_millis)
        return max(1, min(asked, self.limit_millis - 1))

    @property
    def is_at_rest(self) -> bool:
        """Paused, and what was read is worked off."""
        is_drained = self.backlog is not None and self.backlog.is_empty
        is_held = not any(s.tasks for s in self.schedules.values() if s.is_source)
        return self.topology.spec.paused and is_drained and is_held

    def remote_scene(self, schedules: Iterable[OperatorSchedule]) -> RemoteScene:
        """What remote tasks are decided on, with these Schedules."""
        return RemoteScene(
            tuple(schedules),
            self.book.remote,
            self.workers,
            self.pods,
            self.observed.spark_workers,
            self.rooms,
            Cores(
                self.request_millis,
                self.task_cpu_millis,
                self.limit_millis,
                self.tasks_per_worker,
                self.memory_bytes,
            ),
        )

    def sla_hosts(self) -> Iterator[SlaHost]:
        """Ready workers that stay, with what fits their cores and their nodes."""
        stores = {store.id: store for store in self.observed.stores if store.ready}
        free = {
            node.name: max(0, node.cpu_free_millis)
            for node in self.observed.nodes
            if node.schedulable and not self.rooms.is_reserved
        }
        for worker in self.workers:
            store, pod = stores.get(worker.store), self.pods.get(worker.name)
            is_able = worker.state is WorkerState.READY and not worker.must_go and not worker.is_leaving
            if store is None or pod is None or not is_able:
                continue
            holding = worker.holding
            most = room = max(0, self.tasks_per_worker - holding.tasks)
            at_home, more = holding.tasks - holding.remote_tasks, free.get(worker.node, 0)
            while room and self.request_millis(at_home + room) - pod.cpu_request_millis > more:
                room -= 1
            if self.plan.remote_tasks:
                beside = room_beside(self.remote_scene(self.schedules.values()), worker.node)
                room = min(most, room + beside)
            yield SlaHost(
                worker_place(worker, self.observed.schedules),
                StorePlace(store.id, store.node, store.address),
                worker.group,
                holding.tasks,
                room,
            )
