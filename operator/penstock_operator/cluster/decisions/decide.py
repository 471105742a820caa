"""The operator's decision for one topology: from what is seen to what is done. Pure, and level-based.

`decide` is asked again and again, and after any crash; it goes on from whatever it sees. Its parts are
small modules by role; this one calls them in order: `identity` (whose state), `demand` (what is wanted),
`turn` (one look, with all of these and how workers are), `penstock.supervision` (who hosts, who is made, who
goes), `schedule_decisions`, `verdict` (how it is), `leeway_for_slas`, `status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from penstock.figures.operators import Look
from penstock.locality.carrying import with_tables
from penstock.manifest.document import memory_bytes
from penstock.schedule.book import ScheduleBook
from penstock.schedule.hosts_and_wishes import Wish
from penstock.schedule.record import StorePlace
from penstock.supervision.hosts import Group, Hosts, choose_hosts, grouped
from penstock.supervision.numbers import MakeWorker, workers_to_end, workers_to_make
from penstock.supervision.since_when import SinceWhen
from penstock.supervision.worker import Worker, WorkerState
from penstock_operator.cluster.decisions.actions import (
    ApplyConfigMap,
    ApplyDisruptionBudget,
    CreatePod,
    Decision,
    DeleteConfigMap,
    DeletePod,
    Event,
    ResizePod,
)
from penstock_operator.cluster.decisions.figures import look_at, with_sample
from penstock_operator.cluster.decisions.identity import begun_operators, stage_identity, state_identity
from penstock_operator.cluster.decisions.leeway_for_slas import leeway_for_slas
from penstock_operator.cluster.decisions.losses import accepted, without_lost_stores
from penstock_operator.cluster.decisions.quota import quota_as_before
from penstock_operator.cluster.decisions.recovery import Recovery, recovery_of
from penstock_operator.cluster.decisions.remembered import Memory
from penstock_operator.cluster.decisions.remote_turn import keep_remote_tasks, place_remote_tasks
from penstock_operator.cluster.decisions.reserved_names import reserved_name_refusal
from penstock_operator.cluster.decisions.schedule_writing import write_schedule
from penstock_operator.cluster.decisions.sla_leeway import SlaLeeway
from penstock_operator.cluster.decisions.status import Finding, Verdict, events_of, former_status, status_of
from penstock_operator.cluster.decisions.turn import Turn
from penstock_operator.cluster.decisions.unrun import (
    off_leaving_nodes,
    placement_without_topology,
    rehomed_schedules,
)
from penstock_operator.cluster.decisions.verdict import verdict_of
from penstock_operator.cluster.kubernetes_api.names import disruption_budget_name, plan_name, worker_name
from penstock_operator.cluster.manifests.disruption_budget import disruption_budget
from penstock_operator.cluster.manifests.plan_config_map import plan_config_map
from penstock_operator.cluster.manifests.worker_pod import WorkerPod, worker_pod
from penstock_operator.cluster.observing.observed import Need, Observed
from penstock_operator.cluster.workers.demand import partition_faults
from penstock_operator.cluster.workers.misplaced_pods import misplaced, replaced_in_place
from penstock_operator.cluster.workers.node_room import Size
from penstock_operator.cluster.workers.room_advice import advice
from penstock_operator.cluster.workers.schedule_decisions import ScheduleChanges
from penstock_operator.cluster.workers.schedule_figures import rehomed, schedule_figures

STORES_PATIENCE_S = 20.0
"""So long the first workers wait for the stores of all nodes that could take some."""
START_PATIENCE_S = 30.0
"""So long ready workers wait for the others before the first schedules."""
AT_ONCE_S = 0.25
"""When an operator has just become one without a task: its next record must not wait."""
_PATIENCE_OF_SLEEP = 30.0
"""After so many seconds without a task an operator is looked after each second."""
SOON_S = 1.0
LATER_S = 2.0


def decide(observed: Observed, memory: Memory, now_s: float) -> Decision:
    """What to do now. `now_s` is of a monotonic clock."""
    seen = observed.topology
    if seen.topology is None or seen.plan is None:
        told = "; ".join(seen.faults) or "it cannot be read"
        return _held_off_leaving_nodes(observed, memory, now_s, "InvalidManifest", told)
    if seen.is_deleting:
        return _held(observed, memory, "Deleting", "the Topology is being deleted")
    account = seen.topology.spec.pod.service_account_name
    if account is not None and account not in observed.config.worker.service_accounts:
        told = service_account_refusal(account, observed.config.worker.service_accounts)
        return _held_off_leaving_nodes(observed, memory, now_s, "ServiceAccountRefused", told)
    if told := reserved_name_refusal(seen.topology, observed.config):
        return _held_off_leaving_nodes(observed, memory, now_s, "NameRefused", told)
    state = state_identity(seen, seen.plan, observed.schedules)
    if state.reason == "RetainedStateDiffers":
        return _held_off_leaving_nodes(observed, memory, now_s, state.reason, state.problem, state.uid)
    if state.problem:
        return _held(observed, memory, state.reason, state.problem, state.uid)
    begun = begun_operators(seen, former_status(observed, memory.status))
    found = recovery_of(observed, seen.plan, state.uid, begun)
    if found.problem:
        return _held(observed, memory, found.reason, found.problem, state.uid)
    observed = replace(observed, schedules=found.schedules)
    turn = Turn(observed, memory, now_s, seen.topology, seen.plan, state)
    _go_on_with(turn, found)
    _keep_plan(turn)
    _run_groups(turn)
    _leave_lost_stores(turn)
    _carry_tables(turn)
    _keep_schedule_objects(turn)
    keep_remote_tasks(turn, _write_schedules(turn))
    _resize(turn)
    _tidy(turn)
    return _decision(turn)


def service_account_refusal(account: str, allowed: Sequence[str]) -> str:
    """Who may write Topologies must not gain the rights of whatever account there is."""
    names = ", ".join(allowed) or "none"
    return (
        f"spec.pod.serviceAccountName: {account} is not one of those that Topologies may name ({names}); "
        "choose one of these, or have it added to worker.serviceAccounts of the chart"
    )


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
        state_uid=state_uid or str(former.get("stateUid") or ""),
        begun=begun_operators(observed.topology, former),
        workers_ready=sum(pod.ready for pod in observed.pods),
        workers_desired=len(observed.pods),
    )
    status = status_of(observed, verdict, Look(), former)
    return Decision(
        replace(memory, status=status),
        (),
        status,
        events_of(former, status),
        next_look_s=LATER_S,
        leeway=SlaLeeway(held=message),
    )


def _held_off_leaving_nodes(
    observed: Observed, memory: Memory, now_s: float, reason: str, message: str, state_uid: str = ""
) -> Decision:
    """As `_held`, but that nodes which are drained do not wait for it."""
    held = _held(observed, memory, reason, message, state_uid)
    since = SinceWhen(memory.since_s, now_s)
    actions = off_leaving_nodes(
        observed, placement_without_topology(observed.config, observed.schedules), since
    )
    return replace(held, actions=actions, memory=replace(held.memory, since_s=since.after))


def _go_on_with(turn: Turn, found: Recovery) -> None:
    """Rebuilt Schedules are written, whatever else is new in them. First ones wait for stores that may know
    of earlier ones, for a while."""
    turn.anew.extend(found.anew)
    if found.told:
        turn.events.append(Event("Warning", "ScheduleRebuilt", found.told))
        turn.found.treatments.append(("ScheduleRebuilt", found.told))
    if found.unheard and turn.since.lasts_s("unheard") < STORES_PATIENCE_S:
        turn.found.unheard = found.unheard


def _leave_lost_stores(turn: Turn) -> None:
    """Schedules name no store any more that is lost, once nobody misses what was there. That goes before what
    else is to be done about them, which follows from what they are then."""
    if not (turn.losses.found or any(store.lost for store in turn.observed.stores)):
        return
    targets = [
        StorePlace(store.id, store.node, store.address)
        for store in turn.observed.stores
        if turn.rooms.takes(store)
    ]
    taken = accepted(turn.observed.topology.manifest)
    changes, given_up = without_lost_stores(turn.observed, turn.losses, taken, targets)
    turn.changes |= changes
    for loss in given_up:
        told = (
            f"the state of {len(loss.shards)} shards of {loss.operator} ({loss.parts}) is given up, as was "
            "asked: they begin anew with nothing"
        )
        turn.events.append(Event("Warning", "LossAccepted", told))
        turn.found.treatments.append(("LossAccepted", told))


def _carry_tables(turn: Turn) -> None:
    """Schedules carry the newest routing tables of their operators. One that is new waits while shards are
    born that put out rows by it: it does not name them."""
    view = turn.observed.locality
    born = any(
        turn.changes[name].shards.keys() - turn.schedules[name].shards.keys()
        for name in view.producers
        if name in turn.changes and name in turn.schedules
    )
    if not born:
        carried = with_tables(view.tables, {**turn.schedules, **turn.changes})
        turn.changes |= {schedule.operator: schedule for schedule in carried}


def _keep_plan(turn: Turn) -> None:
    """The plan's ConfigMap, and the budget that guards the workers."""
    uid, name = turn.observed.topology.uid, turn.topology.metadata.name
    wanted = plan_name(name, turn.template)
    is_run = not turn.is_finished or turn.is_asked
    if wanted not in turn.observed.config_maps and not turn.code_missing and is_run:
        document = plan_config_map(turn.topology, uid, turn.observed.namespace, turn.template)
        turn.actions.append(ApplyConfigMap(wanted, document))
    living = sum(pod.deletion_timestamp is None for pod in turn.observed.pods)
    guarded = max(living, sum(group.workers_wanted for group in turn.groups))
    if turn.observed.disruption_budget_min != guarded:
        budget = disruption_budget(name, uid, turn.observed.namespace, guarded)
        turn.actions.append(ApplyDisruptionBudget(disruption_budget_name(name), budget))


def _run_groups(turn: Turn) -> None:
    members = grouped(turn.workers, turn.groups, _named_by_operator(turn))
    by_operator = {group.operator: group for group in turn.groups}
    if turn.is_finished:
        _end_all(turn, "all input is worked off", kept=int(turn.is_asked))
    if turn.is_asked:
        group = turn.groups[0]
        _make(turn, group, _missing(turn, group, members[group.operator]))
    if (turn.is_finished or turn.code_missing) and not turn.observed.pods:
        _rehome(turn)
    if turn.is_finished:
        return
    may_start = _may_start(turn, members)
    for operator, workers in members.items():
        _run_group(turn, by_operator[operator], workers, may_start=may_start)
    strangers = [
        worker
        for worker in turn.workers
        if worker.group not in by_operator and not worker.holds_executors and not worker.is_leaving
    ]
    for worker in strangers:
        _delete(turn, worker, "it belongs to no part of the topology any more")


def _rehome(turn: Turn) -> None:
    """Nobody runs it, and nobody is made to: its shards leave nodes that go by themselves."""
    if turn.settled.may_change:
        seen = turn.observed
        turn.changes |= rehomed_schedules(turn.book, turn.settled, seen.nodes, seen.stores, turn.rules)


def _named_by_operator(turn: Turn) -> dict[str, set[str]]:
    named = {
        operator: {executor.worker for executor in schedule.executors}
        for operator, schedule in turn.schedules.items()
    }
    return {"": set().union(*named.values()), **named}


def _run_group(turn: Turn, group: Group, workers: Sequence[Worker], *, may_start: bool) -> None:
    size = turn.size_for(group)
    is_short = _make(turn, group, _missing(turn, group, workers))
    has_begun = any(operator in turn.schedules for operator in turn.stages_of(group))
    hosts = Hosts((), ())
    if has_begun or may_start:
        hosts = choose_hosts(
            group,
            workers,
            may_change=turn.settled.may_change,
            has_room=not is_short,
        )
        is_changing = _plan_schedules(turn, group, hosts)
        turn.found.is_changing |= is_changing
        turn.found.is_handing_over |= bool(hosts.leaving)
        if hosts.treatment and (is_changing or hosts.reason != "ScalingOut"):
            turn.found.treatments.append((hosts.reason, hosts.treatment))
    gone = workers_to_end(group, workers, hosts.staying, is_settled=turn.settled.may_change)
    gone += misplaced(group, workers, turn.pods, turn.rooms, size, turn.since)
    if is_short and turn.settled.may_change:
        gone += replaced_in_place(hosts, turn.pods, turn.rooms, size)
    for entry in gone:
        _delete(turn, entry.worker, entry.reason)


def _missing(turn: Turn, group: Group, workers: Sequence[Worker]) -> tuple[MakeWorker, ...]:
    name_of = partial(worker_name, turn.topology.metadata.name, group.operator)
    return workers_to_make(group, workers, name_of)


def _may_start(turn: Turn, members: Mapping[str, Sequence[Worker]]) -> bool:
    """Whether the first schedules may be written: shards known, workers ready (all, or some after a
    while)."""
    unknown = [s.operator for s in turn.plan.stages if s.operator not in turn.wishes]
    short = some = 0
    for group in turn.groups:
        able = [
            worker
            for worker in members[group.operator]
            if worker.state is WorkerState.READY and not worker.must_go
        ]
        short += len(able) < group.hosts_wanted
        some += bool(able)
    if some < len(turn.groups):
        turn.found.waits_for = "workers are starting"
        return False
    if turn.found.unheard:
        turn.found.waits_for = (
            f"the stores of {', '.join(turn.found.unheard)} have yet to say whether they know the topology"
        )
        return False
    if unknown:
        turn.found.waits_for = f"workers have yet to tell the partitions of {', '.join(unknown)}"
        faults = partition_faults(turn.observed, unknown)
        if faults:
            turn.found.waits_for += f": {'; '.join(faults)}"
        return False
    if short and not turn.schedules:
        turn.found.waits_for = "more workers are starting"
        return turn.since.lasts_s("start") >= START_PATIENCE_S
    return True


def _make(turn: Turn, group: Group, pods: Sequence[MakeWorker]) -> bool:
    """Create what is missing where there is room; whether something had none."""
    if not pods or turn.code_missing:
        # Without its code none can be made: one that must go leaves its work to the others.
        return turn.code_missing
    awaiting = turn.rooms.nodes_without_ready_store()
    if not turn.observed.pods and awaiting and turn.since.lasts_s("stores") < STORES_PATIENCE_S:
        turn.found.waits_for = f"the stores of {', '.join(awaiting)} are starting"
        return False
    unplaced = 0
    last, is_least = turn.size_for(group), False
    for entry in pods:
        size = turn.size_for(group, is_spare=entry.is_spare)
        node = turn.rooms.place(size, entry.preferred)
        if node is None and turn.plan.remote_tasks:
            # It starts with what it asks for at least; tasks for which its node has no cores go to others.
            size = turn.size_for(group, is_spare=True)
            node = turn.rooms.place(size, entry.preferred)
        if node is None:
            unplaced += 1
            last, is_least = size, entry.is_spare or turn.plan.remote_tasks
            continue
        if turn.is_refused(entry.name):
            continue
        worker = WorkerPod(
            entry.name,
            node.name,
            node.hostname or node.name,
            size.cpu_millis,
            turn.limit_millis,
            group.operator,
            turn.rooms.take_server(node.name, entry.server if node.name == entry.preferred else None),
        )
        document = worker_pod(
            worker,
            turn.topology,
            turn.observed.topology.uid,
            turn.state.uid,
            turn.template,
            turn.config,
            own_user=turn.observed.own_users,
        )
        turn.actions.append(CreatePod(entry.name, document))
    if not unplaced:
        return False
    would_fit = advice(turn.asked_by(group, unplaced, is_spare=is_least), turn.rooms.left())
    turn.found.missing_room = "; ".join(filter(None, (turn.rooms.why_none(last), would_fit)))
    before = turn.found.need
    metadata = turn.observed.topology.manifest.get("metadata") or {}
    turn.found.need = Need(
        topology=turn.observed.title,
        priority=turn.topology.spec.priority,
        created=str(metadata.get("creationTimestamp", "")),
        pods=unplaced + (before.pods if before is not None else 0),
        cpu_millis=last.cpu_millis,
        memory_bytes=last.memory_bytes,
    )
    return True


def _plan_schedules(turn: Turn, group: Group, hosts: Hosts) -> bool:
    """The group's schedules as they are to be; whether they change, or are about to."""
    wanted: list[Wish] = [turn.wishes[name] for name in turn.stages_of(group) if name in turn.wishes]
    if turn.found.unheard:
        wanted = [wish for wish in wanted if wish.operator in turn.schedules]
    planned = ScheduleChanges(turn.observed, turn.book, turn.settled, turn.tasks_per_worker, turn.since)
    changes = planned.of_group(wanted, hosts)
    turn.changes |= {change.operator: change for change in changes}
    return bool(changes or planned.warming)


def _keep_schedule_objects(turn: Turn) -> None:
    """What else than the schedule itself stands in its object: owner, quota, and what an operator of another
    version made of the identity."""
    owner = turn.observed.topology.uid if turn.topology.spec.deletion_policy == "Delete" else ""
    quota = memory_bytes(turn.topology.spec.store_memory)
    for seen in turn.observed.schedules:
        identity = stage_identity(turn.plan.stage(seen.schedule.operator))
        is_right = seen.owner_uid == owner and seen.store_memory_bytes in (None, quota)
        is_right = is_right and seen.identity in ("", identity)
        if not is_right:
            turn.anew.append(seen.schedule.operator)


def _write_schedules(turn: Turn) -> ScheduleBook:
    """All that this turn changes; the book as it stands then."""
    written = turn.book.written(
        turn.changes.values(),
        anew=turn.anew,
        term=turn.observed.term,
        place=partial(place_remote_tasks, turn),
    )
    seen = {one.schedule.operator: one for one in turn.observed.schedules}
    for schedule in written.schedules:
        before = seen.get(schedule.operator)
        if before is not None:
            turn.found.begun[schedule.operator] = rehomed(before.schedule, schedule)
        action = write_schedule(
            schedule,
            before,
            turn.topology,
            turn.plan,
            topology_uid=turn.observed.topology.uid,
            state_uid=turn.state.uid,
            namespace=turn.observed.namespace,
        )
        turn.actions.append(action)
    return written.book


def _resize(turn: Turn) -> None:
    """Cores follow tasks, in place. While the first schedules are not there, pods are as they were
    made."""
    if turn.is_finished or len(turn.schedules) < len(turn.plan.stages):
        return
    for worker in turn.workers:
        pod = turn.pods.get(worker.name)
        if pod is None or worker.is_leaving or worker.state is not WorkerState.READY:
            continue
        wish = turn.request_millis(worker.holding.tasks - worker.holding.remote_tasks)
        if (pod.cpu_request_millis, pod.cpu_limit_millis) == (wish, turn.limit_millis):
            continue
        more = Size(max(0, wish - pod.cpu_request_millis), 0)
        if more.cpu_millis and turn.rooms.is_reserved:
            turn.awaited.add(pod.name)
            continue
        if not turn.is_refused(pod.name):
            turn.resizes.append(ResizePod(pod.name, pod.uid, wish, turn.limit_millis))


def _tidy(turn: Turn) -> None:
    """Plans that no pod reads any more."""
    pods = (*turn.observed.pods, *turn.observed.spark_workers)
    used = {plan_name(turn.topology.metadata.name, pod.template_hash) for pod in pods}
    used.add(plan_name(turn.topology.metadata.name, turn.template))
    unused = [name for name in turn.observed.config_maps if name not in used]
    if not turn.code_missing:
        turn.deletions.extend(DeleteConfigMap(name) for name in unused)


def _end_all(turn: Turn, reason: str, kept: int) -> None:
    """But for the first `kept`."""
    for worker in [one for one in turn.workers if one.is_there and not one.is_told_to_go][kept:]:
        _delete(turn, worker, reason)


def _delete(turn: Turn, worker: Worker, reason: str) -> None:
    if not worker.is_there or any(action.name == worker.name for action in turn.deletions):
        return
    turn.deletions.append(DeletePod(worker.name, worker.uid, reason))
    turn.events.append(Event("Normal", "WorkerRemoved", f"worker {worker.name} is removed: {reason}"))


def _decision(turn: Turn) -> Decision:
    samples = with_sample(turn.memory.samples, turn.observed, turn.schedules.values(), turn.now_s)
    status = status_of(
        turn.observed, verdict_of(turn), look_at(turn.observed, turn.schedules, samples), turn.former
    )
    next_look_s = _next_look_s(turn, str(status["phase"]))
    fingerprint = turn.backlog.fingerprint if turn.backlog is not None else None
    memory = Memory(turn.since.after, samples, status, fingerprint)
    # A resize that is refused must hold up nothing else: it comes last.
    actions = (*turn.actions, *turn.deletions, *turn.resizes)
    events = (*events_of(turn.former, status), *turn.events)
    figures = schedule_figures(turn.observed, turn.found.begun)
    return Decision(
        memory,
        actions,
        status,
        events,
        turn.found.need,
        next_look_s,
        figures,
        leeway_for_slas(turn),
        frozenset(turn.awaited),
    )


def _next_look_s(turn: Turn, phase: str) -> float:
    """Soon while something is under way. An operator without a task is looked after at once, for its next
    record must not wait; the longer none has come the less often, and where no source has a task and nothing
    waits, none comes."""
    is_at_work = bool(turn.actions or turn.deletions or turn.resizes or turn.settled.waits)
    is_steady = phase in ("Running", "Finished", "Paused") and not is_at_work
    look_s = LATER_S if is_steady else SOON_S
    asleep = [s.operator for s in turn.schedules.values() if not s.tasks and not s.is_source]
    is_fed = any(s.tasks for s in turn.schedules.values() if s.is_source)
    is_empty = turn.backlog is not None and turn.backlog.is_empty
    if turn.is_finished or not asleep or (is_empty and not is_fed):
        return look_s
    since_s = min(turn.since.lasts_s(f"asleep:{operator}") for operator in asleep)
    return min(look_s, max(AT_ONCE_S, since_s / _PATIENCE_OF_SLEEP))
