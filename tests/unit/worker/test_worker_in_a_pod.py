"""A worker in a pod: launched by its environment, tells what its sources hold, waits where others leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from clocks.standing_clock import StandingClock
from penstock.api.compile import compile_topology
from penstock.api.launch.worker_launch import WorkerLaunch, launch_from
from penstock.api.load import parse_manifest
from penstock.dataflow.plan import Fanout, Plan, Processor, Stage, Tasks
from penstock.dataflow.schema import Column, Schema
from penstock.errors import PermanentError
from penstock.metrics.rows import (
    PartitionsRow,
    ShardRow,
    TaskRow,
    WorkerRow,
    pack,
    partitions_row_name,
    shard_row_name,
    unpack,
    worker_row_name,
)
from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import (
    Answer,
    Bounds,
    Enroll,
    Fetch,
    MintStart,
    OpenStore,
    ProtocolMismatch,
    Publish,
    PutMetrics,
    PutTable,
    ReadMetrics,
    Request,
    Retract,
    StoreUnreachable,
)
from penstock_worker.main_process.loop import (
    RETIRE_US_MAX,
    SUCCESSOR_SILENT_US_MAX,
    MainProcess,
    Replaced,
    SuccessorSilent,
)
from penstock_worker.main_process.prometheus import WorkerCollector
from penstock_worker.main_process.resident_task import ResidentTask
from penstock_worker.main_process.source_announcer import SourceAnnouncer
from penstock_worker.main_process.vitals import START_US_MAX, TURN_US_MAX, WORK_US_MAX, Vitals
from penstock_worker.main_process.worker_report import WorkerReport
from penstock_worker.spark.session import slots
from penstock_worker.task.launch import TaskLaunch

A = TypeVar("A")

ENVIRONMENT = {
    "PENSTOCK_TOPOLOGY_UID": "t1",
    "PENSTOCK_MANIFEST": "/etc/penstock/topology/topology.yaml",
    "PENSTOCK_BASE_DIR": "/app",
    "PENSTOCK_WORKER": "words-w0",
    "PENSTOCK_POD_UID": "pod-1",
    "PENSTOCK_STORE_ID": "node-a",
    "PENSTOCK_STORE_URL": "redis://worker@store.ns.svc:6379",
    "PENSTOCK_METRICS_PORT": "9090",
}
MANIFEST = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: words}
spec:
  code: {configMap: code}
  operators:
  - {name: lines, source: {files: {glob: "*.txt"}}}
  - {name: numbers, source: {zipf: {keys: 9, partitions: 2}}}
  - {name: out, inputs: [lines], sink: {console: {}}}
  - {name: more, inputs: [numbers], sink: {console: {}}}
"""


class FailingStore(MemoryStore):
    """A store whose calls fail while `error` is set."""

    error: Exception | None = None

    def call(self, call: Request[A]) -> A:
        if self.error is not None:
            raise self.error
        return super().call(call)


class PlainTasks:
    """Tasks that are values: they end when they are cancelled."""

    def __init__(self) -> None:
        self.started: list[ResidentTask] = []
        self.busy_shares: list[float] = []

    def can_start(self, node: str) -> bool:
        return not node

    def start(self, launch: TaskLaunch) -> ResidentTask:
        self.started.append(ResidentTask(launch, launch.name))
        return self.started[-1]

    def cancel(self, task: ResidentTask) -> None:
        task.ended.set()

    def is_standing(self, task: ResidentTask, now_us: int) -> bool:
        return False

    def end(self) -> None:
        for task in self.started:
            task.ended.set()

    def prepare(self, busy_share: float) -> None:
        self.busy_shares.append(busy_share)

    @property
    def running(self) -> int:
        return sum(not task.ended.is_set() for task in self.started)


class DeafWait:
    """Every message of the control stream is lost; instead of waiting, the next of `then` is done."""

    def __init__(self, *then: Callable[[], None]) -> None:
        self._then = list(then)
        self.waited_s: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waited_s.append(seconds)
        if self._then:
            self._then.pop(0)()


class Pod:
    """A worker's main process with its store, turned by hand."""

    def __init__(
        self,
        base_dir: Path,
        node: MemoryNode | None = None,
        clock: StandingClock | None = None,
        plan: Plan | None = None,
        **launch: object,
    ) -> None:
        self.base_dir = base_dir
        self.node = node or MemoryNode()
        self.store = FailingStore(self.node, "t1", Bounds())
        self.store.call(OpenStore("node-a"))
        environment = ENVIRONMENT | {"PENSTOCK_BASE_DIR": str(base_dir)}
        self.launch = launch_from(environment).model_copy(update=launch)
        self.clock = clock or StandingClock()
        self.vitals = Vitals(self.clock)
        self.tasks = PlainTasks()
        plan = plan or plan_of()
        self.announcer = SourceAnnouncer(
            self.launch, plan, MemoryStore(self.node, "t1", Bounds()), self.clock
        )
        self.collector = WorkerCollector("words", "words-w0")
        self.process = MainProcess(
            self.launch,
            plan,
            self.store,
            self.tasks,
            WorkerReport(self.launch, self.store, self.collector, self.clock, pid=1),
            self.clock,
            self.vitals,
            self.announcer,
        )

    def publish(self, version: int, *, uid: str = "pod-1", tasks: int = 1, shards: str = "a") -> None:
        answer = self.store.call(
            Publish(
                operator="lines",
                version=version,
                term=1,
                workers=(("words-w0", "node-a", "10.0.0.1", uid),),
                executors=(("lines-words-w0", "words-w0", tasks),),
                shards=tuple((f"lines/{name}.txt", "lines-words-w0", "node-a") for name in shards),
            )
        )
        assert answer is Answer.OK

    def work(self, busy_us: int) -> None:
        """As the first task that was started would tell: it is up, and has worked for so long in all."""
        task = TaskRow(
            "lines-words-w0", "lines", 0, self.tasks.started[0].launch.owner.ready, 1, 0, {}, {}, 0, 0
        )
        shard = ShardRow(1, 1, 0, busy_us, busy_us, 0)
        rows = {"task:words-w0:lines-words-w0:0": pack(task)}
        rows |= {shard_row_name(f"lines/{name}.txt"): pack(shard) for name in "ab"}
        self.store.call(PutMetrics(tuple(rows.items())))

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.us += int(seconds * 1e6)
        self.process.turn()
        self.vitals.turned()

    def turn_for(self, duration_us: int) -> None:
        """A turn each three seconds."""
        for _ in range(duration_us // 3_000_000):
            self.turn(seconds=3)

    def row(self) -> WorkerRow | None:
        data = self.store.call(ReadMetrics()).get(worker_row_name("words-w0"))
        row = None if data is None else unpack(worker_row_name("words-w0"), data)
        assert row is None or isinstance(row, WorkerRow)
        return row

    def partitions(self, operator: str) -> PartitionsRow:
        name = partitions_row_name(operator)
        row = unpack(name, self.store.call(ReadMetrics())[name])
        assert isinstance(row, PartitionsRow)
        return row


def plan_of() -> Plan:
    return compile_topology(parse_manifest(MANIFEST, runtime="cluster").topology, "cluster")


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text("x\n", encoding="utf-8")
    return Pod(tmp_path)


# --- launch --------------------------------------------------------------------------------------


def test_a_pods_environment_is_a_launch() -> None:
    assert launch_from(ENVIRONMENT) == WorkerLaunch(
        topology_uid="t1",
        manifest="/etc/penstock/topology/topology.yaml",
        base_dir="/app",
        worker="words-w0",
        uid="pod-1",
        attempt=0,
        store_id="node-a",
        store_url="redis://worker@store.ns.svc:6379",
        metrics_port=9090,
        runtime="cluster",
    )


def test_what_the_environment_lacks_is_named_in_one_sentence() -> None:
    environment = {k: v for k, v in ENVIRONMENT.items() if k not in ("PENSTOCK_WORKER", "PENSTOCK_POD_UID")}
    with pytest.raises(
        PermanentError, match=r"lacks PENSTOCK_WORKER, PENSTOCK_POD_UID: .*give a launch file"
    ):
        launch_from(environment | {"PENSTOCK_STORE_URL": "x"})
    with pytest.raises(PermanentError, match="PENSTOCK_METRICS_PORT is '90x'; give a port"):
        launch_from(ENVIRONMENT | {"PENSTOCK_METRICS_PORT": "90x"})


def test_a_session_admits_more_tasks_than_the_manifest_asks_for_at_first() -> None:
    assert slots(plan_of()) >= 64


# --- partitions ------------------------------------------------------------------------------------


def test_the_partitions_of_all_sources_are_announced(pod: Pod) -> None:
    pod.announcer.announce()
    assert pod.partitions("lines").shards == ("lines/a.txt", "lines/b.txt")
    assert pod.partitions("numbers").shards == ("numbers/0", "numbers/1")
    assert (pod.partitions("lines").worker, pod.partitions("lines").uid) == ("words-w0", "pod-1")
    assert pod.announcer.announced == ("lines", "numbers")


def test_a_source_without_files_says_so_and_is_looked_for_again(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.announcer.announce()
    assert pod.partitions("lines").shards == ()
    assert "no file matches '*.txt'" in pod.partitions("lines").message
    assert pod.announcer.announced == ("numbers",)
    (tmp_path / "late.txt").write_text("x\n", encoding="utf-8")
    pod.announcer.announce()
    assert pod.partitions("lines").shards == ("lines/late.txt",)


def test_partitions_are_announced_under_the_stores_generation(pod: Pod) -> None:
    pod.turn()
    pod.announcer.announce()
    assert pod.partitions("lines").generation == 1
    pod.store.call(OpenStore("node-a"))
    pod.turn()
    pod.announcer.announce()
    assert pod.partitions("lines").generation == 2


# --- routing tables --------------------------------------------------------------------------------


def test_tasks_are_told_of_a_table_once_it_is_new(tmp_path: Path) -> None:
    """So that all producers switch together, and not each when it looks the next time."""
    (tmp_path / "a.txt").write_text("x\n", encoding="utf-8")
    pod = Pod(tmp_path, plan=plan_with_tables())
    pod.publish(1)
    pod.turn()
    ready = pod.tasks.started[0].launch.owner.ready

    def is_told() -> bool:
        return pod.store.call(Fetch(ready, 1, 0)).control

    is_told()  # of its shards
    pod.turn()
    assert not is_told()
    pod.store.call(PutTable("count", 1, b"a table"))
    pod.turn()
    assert is_told()
    pod.turn()
    assert not is_told()


def plan_with_tables() -> Plan:
    plan = plan_of()
    words = Schema((Column("word", "string"),))
    count = Processor("m:Count", words, (0,), 2, locality=True)
    return replace(
        plan, stages=(*plan.stages, Stage("count", count, Tasks(1, 1, 1), Fanout(words, (), (), ())))
    )


# --- waiting ---------------------------------------------------------------------------------------


def test_a_worker_that_no_schedule_names_is_warm(pod: Pod) -> None:
    pod.announcer.announce()
    pod.turn()
    row = pod.row()
    assert row is not None
    assert (row.uid, row.state, row.sources) == ("pod-1", "ready", ("lines", "numbers"))
    assert pod.vitals.ready().good
    pod.publish(1)
    pod.turn()
    assert pod.tasks.running == 1


@pytest.mark.parametrize(("runtime", "prints"), [("cluster", True), ("local", False)])
def test_in_a_cluster_tasks_print_what_goes_to_the_console(
    tmp_path: Path, runtime: str, prints: bool
) -> None:
    pod = Pod(tmp_path, runtime=runtime)
    pod.publish(1)
    pod.turn()
    assert [task.launch.prints for task in pod.tasks.started] == [prints]


def test_a_store_that_does_not_answer_is_waited_for(pod: Pod) -> None:
    for error in (
        StoreUnreachable("away"),
        ProtocolMismatch("no library"),
        PermanentError("refuses the login"),
    ):
        pod.store.error = error
        pod.turn()
        assert pod.vitals.healthy().good
        assert pod.vitals.ready().why == str(error)
        assert not pod.vitals.ready().good
    pod.store.error = None
    pod.turn()
    assert pod.vitals.ready().good


def test_tasks_go_on_while_the_store_is_away_and_readiness_ends_when_that_lasts(pod: Pod) -> None:
    pod.publish(1)
    pod.turn()
    pod.store.error = StoreUnreachable("away")
    pod.turn()
    assert pod.tasks.running == 1
    assert pod.vitals.ready().good
    pod.turn(seconds=WORK_US_MAX / 1e6 + 1)
    assert pod.tasks.running == 1
    assert not pod.vitals.ready().good
    assert pod.vitals.healthy().good


def test_a_replaced_worker_ends_its_tasks_and_goes_on_when_it_is_named_again(pod: Pod) -> None:
    pod.publish(1)
    pod.turn()
    pod.publish(2, uid="pod-2")
    pod.turn()
    pod.turn(seconds=3)
    pod.turn()
    assert pod.tasks.running == 0
    assert pod.vitals.ready().why == "enrolling worker words-w0 was answered STALE"
    assert pod.vitals.healthy().good
    pod.publish(3)
    pod.turn()
    pod.turn()
    assert pod.tasks.running == 1
    assert pod.vitals.ready().good


def test_a_worker_of_a_retracted_topology_waits_to_be_deleted(pod: Pod) -> None:
    pod.publish(1)
    pod.turn()
    assert pod.store.call(Retract()) == 0
    pod.turn()
    pod.turn(seconds=3)
    pod.turn()
    assert pod.tasks.running == 0
    assert not pod.vitals.ready().good
    assert pod.vitals.healthy().good


def test_a_container_that_starts_again_in_its_pod_enrols_though_the_clock_was_ahead(pod: Pod) -> None:
    # As an earlier version of Penstock enrolled it, by the clock's milliseconds.
    assert pod.store.call(Enroll("words-w0", "pod-1", 1_700_000_000_000, 0)) is Answer.OK
    pod.clock.us = 1_000_000
    pod.turn()
    assert pod.vitals.ready().good


def test_a_start_that_another_one_replaced_does_not_come_before_it_again(pod: Pod) -> None:
    pod.publish(1)
    pod.turn()
    later = pod.store.call(MintStart("words-w0"))
    assert isinstance(later, int)
    assert pod.store.call(Enroll("words-w0", "pod-1", later, 0)) is Answer.OK
    pod.publish(2, shards="ab")
    for _ in range(5):
        pod.turn(seconds=3)
    assert pod.tasks.running == 0
    assert pod.vitals.ready().why == "enrolling worker words-w0 was answered STALE"
    assert pod.store.call(Enroll("words-w0", "pod-1", later, 0)) is Answer.OK


def test_a_start_whose_successor_is_silent_ends_so_that_its_pod_starts_it_again(pod: Pod) -> None:
    pod.publish(1)
    pod.turn()
    later = Pod(pod.base_dir, node=pod.node, clock=pod.clock)
    later.turn()
    for _ in range(10):
        pod.turn_for(SUCCESSOR_SILENT_US_MAX // 3)
        later.turn()
    assert later.vitals.ready().good
    assert not pod.vitals.ready().good
    with pytest.raises(SuccessorSilent, match="is silent"):
        pod.turn_for(2 * SUCCESSOR_SILENT_US_MAX)
    assert pod.tasks.running == 0
    again = Pod(pod.base_dir, node=pod.node, clock=pod.clock)
    again.turn()
    again.turn()
    assert again.vitals.ready().good


def test_a_start_that_the_schedule_does_not_name_waits_for_as_long_as_that_is_so(pod: Pod) -> None:
    pod.publish(1, uid="pod-2")
    pod.turn_for(3 * SUCCESSOR_SILENT_US_MAX)
    pod.publish(2)
    pod.turn()
    assert pod.vitals.ready().good


def test_a_local_worker_leaves_instead(tmp_path: Path) -> None:
    pod = Pod(tmp_path, runtime="local")
    pod.publish(1, uid="another")
    with pytest.raises(Replaced):
        pod.turn()
    pod.store.error = StoreUnreachable("away")
    with pytest.raises(StoreUnreachable):
        pod.turn()


def test_a_schedule_is_followed_within_a_cycle_when_its_message_is_lost(pod: Pod) -> None:
    wait = DeafWait(lambda: pod.publish(1), pod.process.request_stop, pod.tasks.end)
    pod.process.run(wait)
    assert wait.waited_s[0] == 0.3, "N-Storm's T_W"
    assert [task.launch.owner.executor for task in pod.tasks.started] == ["lines-words-w0"]


def test_a_worker_that_is_told_to_stop_has_ended_when_its_tasks_have(pod: Pod) -> None:
    pod.publish(1)
    pod.process.step()
    pod.process.request_stop()
    pod.process.step()
    row = pod.row()
    assert row is not None
    assert row.state == "stopping"
    assert not pod.process.ended
    pod.tasks.end()
    for _ in range(2):
        pod.process.step()
    assert pod.process.ended


def test_tasks_that_do_not_end_hold_up_a_worker_that_is_told_to_stop_for_some_seconds_only(pod: Pod) -> None:
    pod.publish(1)
    pod.process.step()
    pod.process.request_stop()
    pod.process.step()
    pod.clock.us += RETIRE_US_MAX + 1
    pod.process.step()
    assert pod.process.ended


# --- probes ----------------------------------------------------------------------------------------


def test_a_worker_is_healthy_but_not_ready_while_spark_starts() -> None:
    clock = StandingClock()
    vitals = Vitals(clock)
    clock.us += START_US_MAX
    assert vitals.healthy().good
    assert (vitals.ready().good, vitals.ready().why) == (False, "Spark is starting")
    clock.us += 1
    assert not vitals.healthy().good


def test_a_main_loop_that_hangs_is_unhealthy() -> None:
    clock = StandingClock()
    vitals = Vitals(clock)
    vitals.worked()
    vitals.turned()
    clock.us += TURN_US_MAX
    assert vitals.healthy().good
    assert not vitals.ready().good
    clock.us += 1
    assert not vitals.healthy().good


# --- what is prepared for ------------------------------------------------------------------------


@pytest.mark.parametrize(("shards", "share"), [("ab", 0.8), ("a", 0.0)])
def test_how_busy_tasks_are_is_told_where_another_one_would_find_a_shard(
    pod: Pod, shards: str, share: float
) -> None:
    pod.turn()
    pod.publish(2, shards=shards)
    pod.turn()
    for second in range(4):
        pod.work(second * 400_000)
        pod.turn(1.0)
    assert pod.tasks.busy_shares[0] == 0.0
    assert pod.tasks.busy_shares[-1] == pytest.approx(share)


# --- its metrics ---------------------------------------------------------------------------------


def test_the_rows_of_an_earlier_starts_tasks_are_not_among_a_workers_metrics(pod: Pod) -> None:
    pod.publish(2)
    pod.turn()
    old = TaskRow("lines-words-w0", "lines", 1, "lines-words-w0.1.9.pod-0/1/0", 1, 0, {}, {"lines": 7}, 0, 0)
    pod.store.call(PutMetrics((("task:words-w0:lines-words-w0:1", pack(old)),)))
    pod.work(0)
    pod.turn(1.1)
    families = {family.name: family for family in pod.collector.collect()}
    assert [sample.value for sample in families["penstock_tasks"].samples] == [1]
    assert families["penstock_task_rows"].samples == []
