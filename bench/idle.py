"""`make bench-idle`: what a worker costs that has nothing to do.

`penstock run` with three operators and no input, measured twice: with a task for each operator, and with
some tasks more. The difference is what a task costs; what is left without any is the base. A worker is its
main process with all under it (JVM, tasks); what the run needs beside it, the store and the command itself,
is given apart.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench import cpu, machine, penstock_side
from bench.cpu import CpuSampler
from bench.penstock_side import START_WITHIN_S, RunFailedError, Running
from bench.screen import Screen, scratch, seconds_per_figure, show
from rich.table import Table

from penstock.metrics.rows import TaskRow, WorkerRow, unpack
from penstock.store.port import ReadMetrics
from penstock.store.redis.store import RedisStore

SECONDS = 20.0
SETTLE_S = 10.0
"""After the last task is there: caches, compilers and collectors come to rest."""
OPERATORS = 3
MORE_TASKS = 4
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Idle:
    """A worker with `tasks` resident tasks: share of a core and memory. `run_` is all of `penstock run`."""

    tasks: int
    cpu_percent: float
    pss_mib: float
    run_cpu_percent: float
    run_pss_mib: float
    run_pss_mib_by_process: dict[str, float]


def measure(count_tasks: int, again_tasks: int, seconds: float, screen: Screen) -> Idle:
    """Run idle with so many tasks of the two processors. Raises RunFailedError."""
    tasks = 1 + count_tasks + again_tasks
    overrides = [f"count.tasks.initial={count_tasks}", f"again.tasks.initial={again_tasks}"]
    with (
        screen.step(f"{OPERATORS} operators, {tasks} tasks"),
        scratch("idle") as folder,
        penstock_side.running("idle", overrides, folder) as run,
    ):
        store = run.connect(START_WITHIN_S)
        try:
            worker = _wait_for_tasks(run, store, tasks)
        finally:
            store.close()
        screen.tell("settling")
        time.sleep(SETTLE_S)
        screen.tell("measuring")
        with (
            CpuSampler(run.process.pid, every_s=1.0) as all_cpu,
            CpuSampler(worker, every_s=1.0) as worker_cpu,
        ):
            start_s = time.time() + 1.0
            end_s = start_s + seconds
            time.sleep(seconds + 2.5)
        run.check()
        by_process = cpu.pss_by_name(run.process.pid)
        return Idle(
            tasks,
            100 * worker_cpu.seconds(start_s, end_s) / seconds,
            sum(cpu.pss_by_name(worker).values()) / MIB,
            100 * all_cpu.seconds(start_s, end_s) / seconds,
            sum(by_process.values()) / MIB,
            {name: round(size / MIB, 1) for name, size in by_process.items()},
        )


def _wait_for_tasks(run: Running, store: RedisStore, wanted: int) -> int:
    """The worker's main process, once so many tasks are up. Raises RunFailedError."""
    end_s = time.monotonic() + START_WITHIN_S
    while time.monotonic() < end_s:
        run.check()
        packed = store.call(ReadMetrics())
        rows = [unpack(name, data) for name, data in packed.items() if not name.startswith("shard:")]
        workers = [row.pid for row in rows if isinstance(row, WorkerRow)]
        if workers and sum(isinstance(row, TaskRow) for row in rows) >= wanted:
            return workers[0]
        time.sleep(0.25)
    raise RunFailedError(f"{wanted} tasks were not up within {START_WITHIN_S:.0f} s: {run.output}")


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(2)
    few = measure(1, 1, seconds, screen)
    many = measure(1 + MORE_TASKS // 2, 1 + MORE_TASKS // 2, seconds, screen)
    added = many.tasks - few.tasks
    per_task_mib = (many.pss_mib - few.pss_mib) / added
    per_task_percent = (many.cpu_percent - few.cpu_percent) / added
    result = {
        "bench": "idle",
        "operators": OPERATORS,
        "tasks": few.tasks,
        "cpu_percent_of_a_core": round(few.cpu_percent, 2),
        "pss_mib": round(few.pss_mib, 1),
        "base_pss_mib": round(few.pss_mib - few.tasks * per_task_mib, 1),
        "per_task_pss_mib": round(per_task_mib, 1),
        "base_cpu_percent": round(few.cpu_percent - few.tasks * per_task_percent, 2),
        "per_task_cpu_percent": round(per_task_percent, 2),
        "run_cpu_percent_of_a_core": round(few.run_cpu_percent, 2),
        "run_pss_mib": round(few.run_pss_mib, 1),
        "run_pss_mib_by_process": few.run_pss_mib_by_process,
        "seconds": seconds,
        "machine": machine.description(),
    }
    table = Table(title="An idle worker, with all its processes")
    table.add_column("")
    for header in ("CPU, % of a core", "PSS, MiB"):
        table.add_column(header, justify="right")
    for idle in (few, many):
        table.add_row(
            f"{OPERATORS} operators, {idle.tasks} tasks", f"{idle.cpu_percent:.2f}", f"{idle.pss_mib:.0f}"
        )
    table.add_row("base", f"{result['base_cpu_percent']:.2f}", f"{result['base_pss_mib']:.0f}")
    table.add_row("each task", f"{result['per_task_cpu_percent']:.2f}", f"{result['per_task_pss_mib']:.0f}")
    table.add_row(
        f"with store and command, {few.tasks} tasks", f"{few.run_cpu_percent:.2f}", f"{few.run_pss_mib:.0f}"
    )
    show(table, result)


if __name__ == "__main__":
    main()
