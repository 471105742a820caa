"""The operator's decision for one topology: from what is seen to what is done. Pure, and level-based.

`decide` is asked again and again, and after any crash; it goes on from whatever it sees. Its parts are
small modules by role; this one calls them in order: `identity` (whose state), `demand` (what is wanted),
`workers` (how they are), `groups` (who hosts, who is made, who goes), `schedule_decisions`, `status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.api.document import cpu_millis, memory_bytes
from penstock.api.topology import Topology
from penstock.dataflow.plan import Plan
from penstock.schedule.record import OperatorSchedule, StorePlace
from penstock.schedule.replan import Wish
from penstock.store.failure_names import failures_of
from penstock_operator.cluster.actions import (
    Action,
    ApplyConfigMap,
    ApplyDisruptionBudget,
    CreatePod,
    Decision,
    DeleteConfigMap,
    DeletePod,
    Event,
    ResizePod,
    WriteSchedule,
)
from penstock_operator.cluster.demand import backlog, wishes
from penstock_operator.cluster.figures import with_sample
from penstock_operator.cluster.groups import (
    Group,
    Hosts,
    NewPod,
    avoids,
    choose_hosts,
    grouped,
    misplaced,
    pods_to_delete,
    pods_to_make,
    replaced_in_place,
)
from penstock_operator.cluster.identity import StateIdentity, stage_identity, state_identity
from penstock_operator.cluster.manifests.disruption_budget import disruption_budget
from penstock_operator.cluster.manifests.plan_config_map import plan_config_map
from penstock_operator.cluster.manifests.schedule_object import schedule_object
from penstock_operator.cluster.manifests.worker_pod import WorkerPod, worker_image, worker_pod
from penstock_operator.cluster.memory import Memory
from penstock_operator.cluster.names import disruption_budget_name, plan_name, schedule_name
from penstock_operator.cluster.node_room import NodeRooms, PlacementRules, Size, served_before
from penstock_operator.cluster.observed import Need, Observed
from penstock_operator.cluster.quota import quota_as_before, quota_finding
from penstock_operator.cluster.schedule_decisions import ScheduleWriter, Settling, settling
from penstock_operator.cluster.schedule_figures import rehomed, schedule_figures
from penstock_operator.cluster.sla_ground import SlaGround, SlaHost
from penstock_operator.cluster.status import Finding, Verdict, events_of, former_status, status_of
from penstock_operator.cluster.template import template_hash
from penstock_operator.cluster.workers import (
    SinceWhen,
    Worker,
    WorkerState,
    judge_workers,
    worker_place,
)

STORES_PATIENCE_S = 20.0
"""So long the first workers wait for the stores of all nodes that could take some."""
START_PATIENCE_S = 30.0
"""So long ready workers wait for the others before the first schedules."""
AVOID_S = 60.0
"""So long a node that did not take a pod is the last choice."""
FEWER_WORKERS_AFTER_S = 60.0
"""So long a LatencySLA must have done with fewer workers before one hands over its work."""
AT_ONCE_S = 0.25
"""While an operator is without a task: its next record must not wait."""
SOON_S = 1.0
LATER_S = 2.0
_FAILURE_LINES_MAX = 4


def decide(observed: Observed, memory: Memory, now_s: float) -> Decision:
    """What to do now. `now_s` is of a monotonic clock."""
    seen = observed.topology
    if seen.topology is None or seen.plan is None:
        return _held(observed, memory, "InvalidManifest", "; ".join(seen.faults) or "it cannot be read")
    if seen.is_deleting:
        return _held(observed, memory, "Deleting", "the Topology is being deleted")
    state = state_identity(seen, seen.plan, observed.schedules)
    if state.problem:
        return _held(observed, memory, state.reason, state.problem, state.uid)
    turn = _Turn(observed, memory, now_s, seen.topology, seen.plan, state)
    turn.keep_plan()
    turn.run_groups()
    turn.keep_schedule_objects()
    turn.resize()
    turn.tidy()
    return turn.decision()


def _held(observed: Observed, memory: Memory, reason: str, message: str, state_uid: str = "") -> Decision:
    """Nothing is touched: pods run on as they are."""
    former = former_status(observed, memory.status)
    verdict = Verdict(
        phase="Pending",
        ready=Finding(False, reason, message),
        progressing=Finding(False, reason, message),
        store_available=Finding(True, "StoresReady"),
        metrics_unavailable=Finding(False, "MetricsRead"),
        quota=quota_as_before(former),
        state_uid=state_uid,
        workers_ready=sum(pod.ready for pod in observed.pods),
        workers_desired=len(observed.pods),
    )
    status = status_of(observed, verdict, {}, (), former)
    return Decision(
        replace(memory, status=status),
        (),
        status,
        events_of(former, status),
        next_look_s=LATER_S,
        ground=SlaGround(held=message),
    )


@dataclass(slots=True)
class _Found:
    """What comes up while the groups are decided, and ends up in the status."""

    treatments: list[tuple[str, str]] = field(default_factory=list)
    """(reason, sentence)"""
    missing_room: str = ""
    need: Need | None = None
    is_handing_over: bool = False
    is_changing: bool = False
    """Schedules are being written."""
    waits_for: str = ""
    begun: dict[str, int] = field(default_factory=dict)
    """Operator -> shards that a schedule written now gives another home."""


class _Turn:
    """One call of `decide`: what it works with, and the actions as they gather."""

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
        self.image = worker_image(topology, self.config)
        self.code_missing = (
            topology.spec.code is not None
            and topology.spec.code.config_map is not None
            and observed.code is None
        )
        self.template = template_hash(topology, self.image, observed.code, state.uid)
        self.settled: Settling = settling(observed, observed.schedules, self.since)
        self.workers = judge_workers(
            observed, observed.schedules, None if self.code_missing else self.template, self.since
        )
        self.former = former_status(observed, memory.status)
        self.quota = quota_finding(
            observed, self.schedules.values(), memory_bytes(topology.spec.store_memory), self.former
        )
        self.wishes = wishes(
            observed,
            plan,
            self.schedules,
            self.since,
            are_sources_held=topology.spec.paused or self.quota.holds,
        )
        self.backlog = backlog(observed, plan, self.schedules)
        self.is_finished = self._finished()
        self.task_cpu_millis = cpu_millis(topology.spec.task_cpu)
        self.limit_millis = cpu_millis(topology.spec.workers.cores.max)
        self.tasks_per_worker = max(1, self.limit_millis // self.task_cpu_millis)
        self.memory_bytes = memory_bytes(topology.spec.workers.memory)
        self.rules = PlacementRules(
            topology.spec.pod,
            {**self.config.store.node_selector, **self.config.worker.node_selector},
            self.config.worker.tolerations,
            plan.durability,
        )
        self.rooms = self._rooms()
        self.groups = self._groups()
        self.found = _Found()
        self.actions: list[Action] = []
        self.deletions: list[DeletePod | DeleteConfigMap] = []
        self.resizes: list[Action] = []
        self.events: list[Event] = []

    # --- what is wanted -------------------------------------------------------------------------

    def _finished(self) -> bool:
        """All input read, nothing waits, seen twice alike; and it stays so while the stores cannot be
        seen."""
        was_finished = self.former.get("phase") == "Finished"
        if self.backlog is None:
            return was_finished and len(self.schedules) == len(self.plan.stages)
        if not (self.backlog.is_empty and self.backlog.are_sources_finished):
            return False
        return was_finished or self.memory.backlog == self.backlog.fingerprint

    def _groups(self) -> tuple[Group, ...]:
        spec = self.topology.spec.workers
        operators = [""] if spec.isolation == "Topology" else [s.operator for s in self.plan.stages]
        name = self.topology.metadata.name
        if self.is_finished:
            return tuple(Group(name, operator, 0, 0) for operator in operators)
        return tuple(Group(name, operator, self._hosts_wanted(operator), spec.warm) for operator in operators)

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
        room = {host.place.name: host.tasks + host.room for host in self._sla_hosts()}
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

    def _stages_of(self, group: Group) -> list[str]:
        return [s.operator for s in self.plan.stages if group.operator in ("", s.operator)]

    def _rooms(self) -> NodeRooms:
        counts: dict[str, int] = {}
        for pod in self.observed.pods:
            if pod.deletion_timestamp is None:
                counts[pod.node] = counts.get(pod.node, 0) + 1
        name = self.topology.metadata.name
        created = str((self.observed.topology.manifest.get("metadata") or {}).get("creationTimestamp", ""))
        first = served_before(self.observed.needs, name, self.topology.spec.priority, created)
        avoided = {n.name for n in self.observed.nodes if self.since.recalls(avoids(n.name), AVOID_S)}
        return NodeRooms(self.observed.nodes, self.observed.stores, self.rules, counts, first, avoided)

    def _size_for(self, group: Group, *, is_spare: bool = False) -> Size:
        """What a new worker asks for: its part of the group's tasks."""
        tasks = sum(
            self.wishes[stage.operator].tasks if stage.operator in self.wishes else stage.tasks.initial
            for stage in self.plan.stages
            if group.operator in ("", stage.operator)
        )
        share = 0 if is_spare else -(-tasks // max(1, group.hosts_wanted))
        return Size(self._request_millis(share), self.memory_bytes)

    def _request_millis(self, tasks: int) -> int:
        """Below the limit always: see `manifests.worker_pod`."""
        least = cpu_millis(self.topology.spec.workers.cores.min)
        asked = min(max(tasks * self.task_cpu_millis, least), self.limit_millis)
        return max(1, min(asked, self.limit_millis - 1))

    # --- the parts ------------------------------------------------------------------------------

    def keep_plan(self) -> None:
        """The plan's ConfigMap, and the budget that guards the workers."""
        uid, name = self.observed.topology.uid, self.topology.metadata.name
        wanted = plan_name(name, self.template)
        if wanted not in self.observed.config_maps and not self.code_missing and not self.is_finished:
            document = plan_config_map(self.topology, uid, self.config.namespace, self.template)
            self.actions.append(ApplyConfigMap(wanted, document))
        living = sum(pod.deletion_timestamp is None for pod in self.observed.pods)
        guarded = max(living, sum(group.pods_wanted for group in self.groups))
        if self.observed.disruption_budget_min != guarded:
            budget = disruption_budget(name, uid, self.config.namespace, guarded)
            self.actions.append(ApplyDisruptionBudget(disruption_budget_name(name), budget))

    def run_groups(self) -> None:
        members = grouped(self.workers, self.groups, self._named_by_operator())
        by_operator = {group.operator: group for group in self.groups}
        if self.is_finished:
            self._end_all("all input is worked off")
            return
        may_start = self._may_start(members)
        for operator, workers in members.items():
            self._run_group(by_operator[operator], workers, may_start=may_start)
        strangers = [
            worker
            for worker in self.workers
            if worker.operator not in by_operator and not worker.executors and not worker.is_leaving
        ]
        for worker in strangers:
            self._delete(worker, "it belongs to no part of the topology any more")

    def _named_by_operator(self) -> dict[str, set[str]]:
        named = {
            operator: {executor.worker for executor in schedule.executors}
            for operator, schedule in self.schedules.items()
        }
        return {"": set().union(*named.values()), **named}

    def _run_group(self, group: Group, workers: Sequence[Worker], *, may_start: bool) -> None:
        size = self._size_for(group)
        made = pods_to_make(group, workers)
        is_short = self._make(group, made)
        has_begun = any(operator in self.schedules for operator in self._stages_of(group))
        hosts = Hosts((), ())
        if has_begun or may_start:
            hosts = choose_hosts(
                group,
                workers,
                may_change=self.settled.may_change,
                has_room=not is_short,
            )
            is_changing = self._write(group, hosts)
            self.found.is_changing |= is_changing
            self.found.is_handing_over |= bool(hosts.leaving)
            if hosts.treatment and (is_changing or hosts.reason != "ScalingOut"):
                self.found.treatments.append((hosts.reason, hosts.treatment))
        gone = pods_to_delete(group, workers, hosts, is_settled=self.settled.may_change)
        gone += misplaced(group, workers, self.rooms, size, self.since)
        if is_short and self.settled.may_change:
            gone += replaced_in_place(hosts, self.rooms, size)
        for entry in gone:
            self._delete(entry.worker, entry.reason)

    def _may_start(self, members: Mapping[str, Sequence[Worker]]) -> bool:
        """Whether the first schedules may be written: shards known, workers ready (all, or some after a
        while)."""
        unknown = [s.operator for s in self.plan.stages if s.operator not in self.wishes]
        short = some = 0
        for group in self.groups:
            able = [
                worker
                for worker in members[group.operator]
                if worker.state is WorkerState.READY and not worker.must_go
            ]
            short += len(able) < group.hosts_wanted
            some += bool(able)
        if some < len(self.groups):
            self.found.waits_for = "workers are starting"
            return False
        if unknown:
            self.found.waits_for = f"workers have yet to tell the partitions of {', '.join(unknown)}"
            return False
        if short and not self.schedules:
            self.found.waits_for = "more workers are starting"
            return self.since.lasts_s("start") >= START_PATIENCE_S
        return True

    def _make(self, group: Group, pods: Sequence[NewPod]) -> bool:
        """Create what is missing where there is room; whether something had none."""
        if not pods or self.code_missing:
            return False
        awaiting = self.rooms.nodes_without_ready_store()
        if not self.observed.pods and awaiting and self.since.lasts_s("stores") < STORES_PATIENCE_S:
            self.found.waits_for = f"the stores of {', '.join(awaiting)} are starting"
            return False
        unplaced = 0
        last = self._size_for(group)
        for entry in pods:
            size = self._size_for(group, is_spare=entry.is_spare)
            node = self.rooms.place(size, entry.preferred)
            if node is None:
                unplaced += 1
                last = size
                continue
            worker = WorkerPod(
                entry.name,
                node.name,
                node.hostname or node.name,
                size.cpu_millis,
                self.limit_millis,
                group.operator,
            )
            document = worker_pod(
                worker,
                self.topology,
                self.observed.topology.uid,
                self.state.uid,
                self.template,
                self.config,
            )
            self.actions.append(CreatePod(entry.name, document))
        if not unplaced:
            return False
        self.found.missing_room = self.rooms.why_none(last)
        before = self.found.need
        metadata = self.observed.topology.manifest.get("metadata") or {}
        self.found.need = Need(
            topology=self.topology.metadata.name,
            priority=self.topology.spec.priority,
            created=str(metadata.get("creationTimestamp", "")),
            pods=unplaced + (before.pods if before is not None else 0),
            cpu_millis=last.cpu_millis,
            memory_bytes=last.memory_bytes,
        )
        return True

    def _write(self, group: Group, hosts: Hosts) -> bool:
        """The group's schedules; whether they change, or are about to."""
        wanted: list[Wish] = [self.wishes[name] for name in self._stages_of(group) if name in self.wishes]
        writer = ScheduleWriter(
            self.observed, self.observed.schedules, self.settled, self.tasks_per_worker, self.since
        )
        changes = writer.changes(wanted, hosts)
        for change in changes:
            seen = change.seen
            version = seen.resource_version if seen is not None else None
            if seen is not None:
                self.found.begun[seen.schedule.operator] = rehomed(seen.schedule, change.schedule)
            self.actions.append(self._written(change.schedule, version))
        return bool(changes or writer.warming)

    def _written(self, schedule: OperatorSchedule, resource_version: str | None) -> WriteSchedule:
        document = schedule_object(
            schedule,
            self.topology,
            self.observed.topology.uid,
            self.state.uid,
            self.config.namespace,
            stage_identity(self.plan.stage(schedule.operator)),
        )
        name = schedule_name(self.topology.metadata.name, schedule.operator)
        return WriteSchedule(name, schedule, document, resource_version)

    def keep_schedule_objects(self) -> None:
        """What else than the schedule itself stands in its object: owner and quota."""
        writing = {action.name for action in self.actions if isinstance(action, WriteSchedule)}
        owner = self.observed.topology.uid if self.topology.spec.deletion_policy == "Delete" else ""
        quota = memory_bytes(self.topology.spec.store_memory)
        for seen in self.observed.schedules:
            is_right = seen.owner_uid == owner and seen.store_memory_bytes in (None, quota)
            if is_right or seen.name in writing:
                continue
            old = seen.schedule
            new = replace(old, version=old.version + 1, term=self.observed.term)
            self.actions.append(self._written(new, seen.resource_version))

    def resize(self) -> None:
        """Cores follow tasks, in place. While the first schedules are not there, pods are as they were
        made."""
        if self.is_finished or len(self.schedules) < len(self.plan.stages):
            return
        for worker in self.workers:
            pod = worker.pod
            if pod is None or worker.is_leaving or worker.state is not WorkerState.READY:
                continue
            wish = self._request_millis(worker.tasks)
            if (pod.cpu_request_millis, pod.cpu_limit_millis) == (wish, self.limit_millis):
                continue
            more = Size(max(0, wish - pod.cpu_request_millis), 0)
            if more.cpu_millis and self.rooms.is_reserved:
                continue
            self.resizes.append(ResizePod(pod.name, pod.uid, wish, self.limit_millis))

    def tidy(self) -> None:
        """Plans that no pod reads any more."""
        used = {plan_name(self.topology.metadata.name, pod.template_hash) for pod in self.observed.pods}
        used.add(plan_name(self.topology.metadata.name, self.template))
        unused = [name for name in self.observed.config_maps if name not in used]
        if not self.code_missing:
            self.deletions.extend(DeleteConfigMap(name) for name in unused)

    def _end_all(self, reason: str) -> None:
        for worker in self.workers:
            if worker.pod is not None and worker.pod.deletion_timestamp is None:
                self._delete(worker, reason)

    def _delete(self, worker: Worker, reason: str) -> None:
        if worker.pod is None or any(action.name == worker.name for action in self.deletions):
            return
        self.deletions.append(DeletePod(worker.name, worker.pod.uid, reason))
        self.events.append(Event("Normal", "WorkerRemoved", f"worker {worker.name} is removed: {reason}"))

    # --- what is left to LatencySLAs ------------------------------------------------------------

    def ground(self) -> SlaGround:
        return SlaGround(self._held(), self._busy(), tuple(self._sla_hosts()))

    def _held(self) -> str:
        if self.is_finished:
            return "all input is read and worked off"
        if self.topology.spec.paused:
            return "the topology is paused"
        if len(self.schedules) < len(self.plan.stages):
            return self.found.waits_for or "workers are starting"
        down = [w.name for w in self.workers if w.executors and w.state is not WorkerState.READY]
        if down:
            return f"worker {', '.join(down)} is not ready"
        away = self._away()
        return away[0] if away else ""

    def _busy(self) -> str:
        if self.settled.waits and not self.settled.is_overdue:
            return self.settled.waits[0]
        if self.found.treatments:
            return self.found.treatments[0][1]
        return "schedules are being written" if self.found.is_changing else ""

    def _sla_hosts(self) -> Iterator[SlaHost]:
        """Ready workers that stay, with what fits their cores and their nodes."""
        stores = {store.node: store for store in self.observed.stores if store.ready}
        free = {
            node.name: max(0, node.cpu_allocatable_millis - node.cpu_requested_millis)
            for node in self.observed.nodes
            if node.schedulable and not self.rooms.is_reserved
        }
        for worker in self.workers:
            store, pod = stores.get(worker.node), worker.pod
            is_able = worker.state is WorkerState.READY and not worker.must_go and not worker.is_leaving
            if store is None or pod is None or not is_able:
                continue
            room = max(0, self.tasks_per_worker - worker.tasks)
            more = free.get(worker.node, 0)
            while room and self._request_millis(worker.tasks + room) - pod.cpu_request_millis > more:
                room -= 1
            yield SlaHost(
                worker_place(worker, self.observed.schedules),
                StorePlace(store.id, store.node, store.address),
                worker.operator,
                worker.tasks,
                room,
            )

    # --- the verdict ----------------------------------------------------------------------------

    def decision(self) -> Decision:
        samples = with_sample(self.memory.samples, self.observed, self.schedules.values(), self.now_s)
        status = status_of(self.observed, self._verdict(), self.schedules, samples, self.former)
        fingerprint = self.backlog.fingerprint if self.backlog is not None else None
        memory = Memory(self.since.after, samples, status, fingerprint)
        # A resize that is refused must hold up nothing else: it comes last.
        actions = (*self.actions, *self.deletions, *self.resizes)
        events = (*events_of(self.former, status), *self.events)
        is_steady = status["phase"] in ("Running", "Finished", "Paused") and not actions
        next_look_s = LATER_S if is_steady and not self.settled.waits else SOON_S
        if any(not s.tasks and not s.is_source for s in self.schedules.values()) and not self.is_finished:
            next_look_s = AT_ONCE_S
        figures = schedule_figures(self.observed, self.found.begun)
        return Decision(memory, actions, status, events, self.found.need, next_look_s, figures, self.ground())

    def _verdict(self) -> Verdict:
        store = self._store_finding()
        phase, ready = self._ready_finding(store)
        return Verdict(
            phase=phase,
            ready=ready,
            progressing=self._progressing(phase),
            store_available=store,
            metrics_unavailable=self._metrics_finding(),
            quota=self.quota,
            state_uid=self.state.uid,
            workers_desired=sum(group.pods_wanted for group in self.groups),
            workers_ready=sum(
                worker.state is WorkerState.READY and not worker.is_leaving for worker in self.workers
            ),
            tasks_wanted={name: wish.tasks for name, wish in self.wishes.items()},
            shards_moving=self.settled.shards_moving,
        )

    def _ready_finding(self, store: Finding) -> tuple[str, Finding]:
        failures = self._failures()
        if self.is_finished:
            return "Finished", Finding(False, "Finished", "all input is read and worked off")
        if failures:
            operator, message = min(failures.items())
            lines = "\n".join(message.strip().splitlines()[-_FAILURE_LINES_MAX:])
            return "Failed", Finding(False, "UserCodeFailed", f"operator {operator}: {lines}")
        if len(self.schedules) < len(self.plan.stages):
            return self._before_start(store)
        if self.topology.spec.paused:
            is_drained = self.backlog is not None and self.backlog.is_empty
            if is_drained and not any(s.tasks for s in self.schedules.values() if s.is_source):
                return "Paused", Finding(
                    False, "Paused", "sources are stopped, and what was read is worked off"
                )
            return "Draining", Finding(False, "Draining", "sources stop; what was read is being worked off")
        return self._running(store)

    def _before_start(self, store: Finding) -> tuple[str, Finding]:
        if not store.holds:
            return "Pending", store
        if self.code_missing and self.topology.spec.code is not None:
            name = self.topology.spec.code.config_map
            return "Pending", Finding(
                False, "CodeMissing", f"there is no ConfigMap {name}; its .py files are the code"
            )
        if self.observed.refused:
            first = self.observed.refused[0]
            return "Pending", Finding(False, "PodRefused", f"pod {first.name} is refused: {first.message}")
        if self.found.missing_room and not any(w.state is WorkerState.READY for w in self.workers):
            return "Pending", Finding(False, "InsufficientResources", self.found.missing_room)
        stuck = [w.pod for w in self.workers if w.pod is not None and not w.pod.ready and w.pod.reason]
        if stuck:
            told = f"worker {stuck[0].name}: {stuck[0].reason} {stuck[0].message}".strip()
            return "Starting", Finding(False, "WorkersStarting", told)
        return "Starting", Finding(False, "WorkersStarting", self.found.waits_for or "workers are starting")

    def _running(self, store: Finding) -> tuple[str, Finding]:
        if not store.holds:
            return "Running", store
        holders = [worker for worker in self.workers if worker.executors]
        if holders and not any(worker.state is WorkerState.READY for worker in holders):
            return "Starting", Finding(False, "WorkersStarting", self._waiting(holders))
        failed = self._failed_workers()
        if failed:
            return "Running", Finding(False, "WorkerFailed", failed)
        waiting = [worker for worker in holders if worker.state is not WorkerState.READY]
        if waiting:
            return "Running", Finding(False, "WorkersMissing", self._waiting(waiting))
        if self.quota.holds:
            return "Running", replace(self.quota, holds=False)
        return "Running", Finding(True, "Running", "every shard has a worker")

    def _waiting(self, workers: Sequence[Worker]) -> str:
        parts = []
        for worker in workers:
            reason = f" ({worker.pod.reason})" if worker.pod is not None and worker.pod.reason else ""
            parts.append(f"{worker.shards} shards wait for worker {worker.name}{reason}")
        return "; ".join(parts)

    def _failures(self) -> dict[str, str]:
        return {
            operator: message
            for reading in self.observed.readings.values()
            if reading is not None
            for operator, message in failures_of(reading.failures, self.template).items()
        }

    def _failed_workers(self) -> str:
        rows = {
            name: row
            for reading in self.observed.readings.values()
            if reading is not None
            for name, row in reading.workers.items()
        }
        for worker in self.workers:
            row = rows.get(worker.name)
            if row is not None and row.uid == worker.uid and row.state == "failed":
                return f"worker {worker.name} cannot go on: {row.message}"
        return ""

    def _progressing(self, phase: str) -> Finding:
        if self.settled.is_overdue:
            return Finding(False, "DeadlineExceeded", "; ".join(self.settled.waits[:3]))
        if self.observed.refused:
            first = self.observed.refused[0]
            return Finding(False, "PodRefused", f"pod {first.name} is refused: {first.message}")
        if self.found.missing_room and not self.found.is_handing_over:
            return Finding(False, "InsufficientResources", self.found.missing_room)
        if self.found.treatments:
            reason, message = self.found.treatments[0]
            return Finding(True, reason, message)
        if phase == "Starting":
            return Finding(True, "Starting", self.found.waits_for or "workers are starting")
        if self.settled.waits:
            return Finding(True, "ApplyingSchedule", "; ".join(self.settled.waits[:3]))
        return Finding(False, "Settled")

    def _store_finding(self) -> Finding:
        lost = [
            f"{place.lost_shards} shards of {seen.schedule.operator} on node {place.node}"
            for seen in self.observed.schedules
            for place in seen.applied
            if place.lost_shards
        ]
        if lost:
            told = f"stores have lost state: {', '.join(lost)}; delete the Topology and apply it anew"
            return Finding(False, "StateLost", told)
        if self.plan.durability == "Disk" and self.config.store.durability != "Disk":
            told = (
                "durability Disk is asked for, and the node stores are installed with Process; "
                "ask for Process, or install with store.durability=Disk and a storage class"
            )
            return Finding(False, "DurabilityUnavailable", told)
        away = self._away()
        if away:
            return Finding(False, "StoreAway", "; ".join(away))
        if not self.schedules and not self.rooms.open_nodes():
            return Finding(False, "StoresMissing", self.rooms.why_closed())
        return Finding(True, "StoresReady")

    def _away(self) -> list[str]:
        """Stores that hold shards and are not there, each with how many wait for it."""
        there = {store.id for store in self.observed.stores if store.ready}
        ready = {node.name for node in self.observed.nodes if node.ready}
        waiting: dict[str, int] = {}
        for schedule in self.schedules.values():
            nodes = {store.id: store.node for store in schedule.stores}
            for place in schedule.shards.values():
                if place.home not in there or nodes.get(place.home, place.home) not in ready:
                    waiting[place.home] = waiting.get(place.home, 0) + 1
        return [
            f"{count} shards wait for the store of node {home}" for home, count in sorted(waiting.items())
        ]

    def _metrics_finding(self) -> Finding:
        there = {store.id for store in self.observed.stores if store.ready}
        homes = {place.home for s in self.schedules.values() for place in s.shards.values()}
        silent = sorted(home for home in homes & there if self.observed.readings.get(home) is None)
        if silent:
            return Finding(True, "StoreUnanswered", f"no answer from the stores of {', '.join(silent)}")
        return Finding(False, "MetricsRead")
