"""`make bench-profile`: where the tasks of the counting topology spend their time, seen from outside.

A sampling profiler (py-spy, fetched by uv into a cache of its own) looks at each task's process while records
stream through; no product code knows of it. It prints the functions that most samples ended in and leaves
all stacks in `results/`, in the form that flame graph viewers read. BENCH_RATE sets the rate in records per
second (default: as fast as it goes), BENCH_TASKS the counting tasks (1), BENCH_SECONDS how long to look.
py-spy needs the right to trace processes: run as root, or allow it (kernel.yama.ptrace_scope).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench import cpu, penstock_side
from bench.cpu import CpuSampler
from bench.penstock_side import START_WITHIN_S
from bench.screen import RESULTS, Screen, paper, scratch, seconds_per_figure
from rich.table import Table

from penstock.metrics.rows import TaskRow, unpack
from penstock.store.port import ReadMetrics

SECONDS = 15.0
WARMUP_S = 6.0
SAMPLES_PER_S = 250
FUNCTIONS = 25
PY_SPY = "py-spy>=0.4"


def record(pid: int, raw: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start sampling `pid`; `raw` gets a line "frame;frame;... samples" for each stack seen."""
    uv = str(Path(sys.executable).with_name("uv"))
    return subprocess.Popen(
        [
            *(uv, "tool", "run", "--quiet", "--from", PY_SPY, "py-spy", "record", "--pid", str(pid)),
            *("--format", "raw", "--output", str(raw), "--duration", str(round(seconds))),
            *("--rate", str(SAMPLES_PER_S), "--nonblocking", "--function"),
        ],
        stdout=subprocess.DEVNULL,
    )


def read_stacks(raw: Path) -> list[tuple[tuple[str, ...], int]]:
    """(frames from the outermost in, samples) of every stack."""
    stacks = []
    for line in raw.read_text().splitlines():
        frames, _, samples = line.rpartition(" ")
        stacks.append((tuple(frames.split(";")), int(samples)))
    return stacks


def own_and_total(stacks: Sequence[tuple[tuple[str, ...], int]]) -> tuple[Counter[str], Counter[str]]:
    """Samples that ended in each function, and samples in it or in what it called."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for frames, samples in stacks:
        own[frames[-1]] += samples
        for frame in set(frames):
            total[frame] += samples
    return own, total


def _table(title: str, stacks: Sequence[tuple[tuple[str, ...], int]]) -> Table:
    own, total = own_and_total(stacks)
    samples = sum(count for _, count in stacks)
    table = Table(title=f"{title}: {samples} samples on the CPU")
    table.add_column("own", justify="right")
    table.add_column("with callees", justify="right")
    table.add_column("function", no_wrap=True)
    for function, count in own.most_common(FUNCTIONS):
        table.add_row(f"{count / samples:.1%}", f"{total[function] / samples:.1%}", function)
    return table


def main() -> None:
    """Run, sample all tasks at once, show."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    tasks = os.environ.get("BENCH_TASKS", "1")
    overrides = [
        f"records.source.zipf.ratePerSecond={os.environ.get('BENCH_RATE', 'null')}",
        f"count.tasks.initial={tasks}",
        f"count.tasks.max={tasks}",
    ]
    RESULTS.mkdir(exist_ok=True)
    console = paper()
    with (
        Screen(1).step("profile"),
        scratch("profile") as folder,
        penstock_side.running("counting", overrides, folder) as run,
        CpuSampler(run.process.pid) as sampler,
    ):
        store = run.connect(START_WITHIN_S)
        try:
            first = penstock_side.first_record(run, store)
            time.sleep(WARMUP_S)
            rows = [unpack(n, data) for n, data in store.call(ReadMetrics()).items() if n.startswith("task:")]
            processes = {f"{r.operator}-{r.task}": r.pid for r in rows if isinstance(r, TaskRow)}
            profilers = {
                name: (record(pid, folder / f"{name}.raw", seconds), folder / f"{name}.raw")
                for name, pid in sorted(processes.items())
            }
            for profiler, _ in profilers.values():
                profiler.wait(seconds + 60.0)
            last = penstock_side.read(store)
        finally:
            store.close()
        for name, (_, raw) in profilers.items():
            stacks = read_stacks(raw)
            shutil.copy(raw, RESULTS / f"profile-{name}.tmp")
            console.print(_table(name, stacks))
        rate = (last.counted - first.counted) / (last.at_s - first.at_s)
        console.print(f"{rate:,.0f} records/s while sampled; CPU seconds by process: {sampler.by_name()}")


if __name__ == "__main__":
    main()
