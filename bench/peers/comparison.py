"""`make bench-peers`: Penstock and its peers, the same keyed count from the same paced topic of Kafka.

Each system lives twice (`lives`): at paces, quiet and beside spinning processes, up to what it holds; and up
to a kill -9 of all its processes. BENCH_SYSTEMS names some of them, BENCH_SECONDS how long a pace is measured
(and, by it, how long all else lasts), BUSY how many processes spin (0: none), BENCH_FULL=1 climbs the ladder
for all variants too, BENCH_MINUTES bounds the whole: a system that would begin too late is left out, and says
so.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import cpu, kafka_runs, machine, plots
from bench.busy import spinners
from bench.core_groups import core_group
from bench.peer_environment import NoPeerError
from bench.peers import ladder, lives, sides
from bench.peers.figures import named
from bench.penstock_side import RunFailedError
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.sink_log import WrongTotalsError
from confluent_kafka import KafkaException
from rich.table import Table

from backends.kafka_broker import KafkaBroker

PACES_PER_S = (1_000.0, 10_000.0)
BOUNDS_MS = {"p99_1s": 1_000.0, "p99_100ms": 100.0}
SECONDS = 10.0
WARM_SHARE, STEP_SHARE, KILL_SHARE = 1.5, 0.6, 2.5
"""What else lasts goes by how long a pace is measured: a step of the ladder, and 25 s until a kill."""
MINUTES = 58.0
LIFE_S = 240.0
"""What is left at least when a system begins."""
REASON_MAX = 500
FAULTS = (NoPeerError, RunFailedError, WrongTotalsError, KafkaException, ValueError, OSError)
"""One system's; the others go on."""
JAVA_OPTIONS = ("-XX:+UseSerialGC",)
BROKER_WARMUP_S = 10.0


@dataclass(frozen=True, slots=True)
class System:
    """One column. `whole` is climbed the ladder with in any case."""

    label: str
    promise: str
    prepare: sides.Prepare
    whole: bool = False


_RESTART = "at least once; state from the last checkpoint"
SYSTEMS = {
    "penstock": System(
        "Penstock Process",
        "at least once to Kafka; state survives killed processes",
        sides.penstock(),
        whole=True,
    ),
    "penstock_disk": System(
        "Penstock Disk",
        "at least once to Kafka; state survives a lost power supply",
        sides.penstock("Disk"),
        whole=True,
    ),
    "penstock_exactly_once": System(
        "Penstock exactly once",
        "exactly once to Kafka; state survives killed processes",
        sides.penstock(deliver="ExactlyOnce"),
    ),
    "spark_micro_batch": System(
        "Spark micro-batch",
        "at least once; state from the last batch",
        sides.spark_micro_batch,
        whole=True,
    ),
    "spark_rtm_jvm": System(
        "Spark RTM, 5 min",
        f"{_RESTART}, 5 min apart",
        sides.spark_rtm_jvm("5 minutes"),
        whole=True,
    ),
    "spark_rtm_jvm_10s": System(
        "Spark RTM, 10 s", f"{_RESTART}, 10 s apart", sides.spark_rtm_jvm("10 seconds")
    ),
    **{
        f"{name}{'' if (state, checkpoints) == ('hashmap', '10 s') else suffix}": System(
            f"{label} {kind}, {checkpoints}",
            f"{_RESTART}, {checkpoints} apart",
            prepare(state, checkpoints),
            whole=(state, checkpoints) == ("hashmap", "10 s"),
        )
        for name, label, prepare in (
            ("pyflink", "PyFlink", sides.pyflink),
            ("flink_java", "Flink", sides.flink_java),
        )
        for state, kind, checkpoints, suffix in (
            ("hashmap", "heap", "10 s", "_heap_10s"),
            ("hashmap", "heap", "1 s", "_heap_1s"),
            ("rocksdb", "RocksDB", "10 s", "_rocksdb_10s"),
            ("rocksdb", "RocksDB", "1 s", "_rocksdb_1s"),
        )
    },
    "bytewax": System("bytewax", f"{_RESTART}, 1 s apart", sides.bytewax, whole=True),
}


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    wanted = os.environ.get("BENCH_SYSTEMS", "").replace(",", " ").split() or list(SYSTEMS)
    if unknown := [name for name in wanted if name not in SYSTEMS]:
        raise SystemExit(f"BENCH_SYSTEMS names {', '.join(unknown)}: there are {', '.join(SYSTEMS)}.")
    with scratch("kafka") as folder, closing(KafkaBroker(folder, java_options=JAVA_OPTIONS)) as broker:
        broker.start()
        (folder / "built").mkdir()
        result = measure(broker, wanted, folder / "built")
    RESULTS.mkdir(exist_ok=True)
    plots.peers(RESULTS / "peers.png", *drawn(result))
    show(table(result), result)


def measure(broker: KafkaBroker, wanted: list[str], built: Path) -> dict[str, Any]:
    """One system after the other."""
    seconds = seconds_per_figure(SECONDS)
    ends_s = time.monotonic() + 60 * float(os.environ.get("BENCH_MINUTES", MINUTES))
    busy = spinners(os.cpu_count() or 1)
    times = lives.Times(*(seconds * share for share in (WARM_SHARE, 1.0, STEP_SHARE, KILL_SHARE)))
    screen = Screen(len(wanted) + 1)
    preferred = lives.prefer_process(broker.pid)
    with core_group() as group:
        groups = group.is_there
    with screen.step("the broker is warmed up"), scratch("peers") as folder:
        warm = sides.penstock()(sides.Place(broker, built, screen.tell))
        kafka_runs.paced(broker, warm, PACES_PER_S[1], 2.0, BROKER_WARMUP_S, folder, screen.tell)
    found: dict[str, Any] = {}
    for name in wanted:
        with screen.step(SYSTEMS[name].label):
            if time.monotonic() + LIFE_S > ends_s:
                found[name] = {"missing": "left out: the time of the bench was over"}
            else:
                found[name] = one(broker, SYSTEMS[name], built, busy, times, screen)
            if "missing" in found[name]:
                screen.note(found[name]["missing"])
    return {
        "bench": "peers",
        "systems": found,
        "spinning": busy,
        "harness_preferred": preferred,
        "core_groups": groups,
        "seconds": seconds,
        "settings": sides.settings(),
        "machine": machine.description(),
    }


def one(
    broker: KafkaBroker, system: System, built: Path, busy: int, times: lives.Times, screen: Screen
) -> dict[str, Any]:
    """A system's part of the result; what it lacks says why."""
    bounds = list(BOUNDS_MS.values()) if system.whole or os.environ.get("BENCH_FULL") else []
    try:
        start = system.prepare(sides.Place(broker, built, screen.note))
        with scratch("peers") as folder:
            life = lives.at_paces(
                broker, start, PACES_PER_S, bounds, busy, times, folder, screen.tell, screen.note
            )
    except FAULTS as error:
        return {"promise": system.promise, "missing": reason(error)}
    killed, lacks = None, {}
    try:
        with scratch("peers") as folder:
            killed = lives.killed(broker, start, times, folder, screen.tell)
        screen.note(f"killed: {killed}")
    except FAULTS as error:
        lacks = {"missing_kill": reason(error)}
        screen.note(lacks["missing_kill"])
    climbed = {name: bound for name, bound in BOUNDS_MS.items() if bounds}
    return named(system.promise, life.paced, life.steps, life.full, killed, climbed) | lacks


def table(result: dict[str, Any]) -> Table:
    """For people: a line a system."""
    found = Table(title="The same keyed count from the same topic; ages in ms, p50/p99", padding=0)
    found.add_column("system", no_wrap=True)
    for pace in PACES_PER_S:
        for header in (short(pace), "busy", "cores"):
            found.add_column(header, justify="right")
    for header in ("100 ms", "1 s", "unbound", "twice"):
        found.add_column(header, justify="right")
    for name, one in result["systems"].items():
        if "missing" in one:
            found.add_row(SYSTEMS[name].label, "missing")
            continue
        cells = []
        for pace in PACES_PER_S:
            at = one[f"{pace:.0f}"]
            cells += [ages(at["p50_ms"], at["p99_ms"]), ages(at["busy_p50_ms"], at["busy_p99_ms"])]
            cells.append(f"{at['cores']:.2f}")
        for bound in ("p99_100ms", "p99_1s", "unbounded"):
            rate, per_cpu_s = one.get(f"{bound}_per_s"), one.get(f"{bound}_per_cpu_s")
            cells.append("" if rate is None else f"{short(rate)}/{short(per_cpu_s)}")
        twice = one["duplicates_after_kill"]
        found.add_row(SYSTEMS[name].label, *cells, "" if twice is None else str(twice))
    found.caption = (
        f"{result['spinning']} processes spin where it is busy; - was not held. Last columns: the highest "
        f"rate at which p99 keeps the bound, of at most {short(ladder.HIGHEST_PER_S)}, and records for each "
        "CPU-second at it; rows that came twice behind a kill."
    )
    return found


def drawn(result: dict[str, Any]) -> tuple[dict[str, dict[str, plots.Pair]], dict[str, int | None]]:
    """What `plots.peers` takes, of the systems that nothing is missing of."""
    whole = {SYSTEMS[name].label: one for name, one in result["systems"].items() if "missing" not in one}
    panes = {
        f"p99 in ms at {pace:,.0f}/s, open: busy": {
            label: (one[f"{pace:.0f}"]["p99_ms"], one[f"{pace:.0f}"]["busy_p99_ms"])
            for label, one in whole.items()
        }
        for pace in PACES_PER_S
    }
    return panes, {label: one["duplicates_after_kill"] for label, one in whole.items()}


def ages(p50_ms: float | None, p99_ms: float | None) -> str:
    return "-" if p50_ms is None or p99_ms is None else f"{p50_ms:.0f}/{p99_ms:.0f}"


def short(number: float) -> str:
    """Thousands from ten of them on."""
    return f"{number / 1000:.0f}k" if number >= 10_000 else f"{number:.0f}"


def reason(error: Exception) -> str:
    """Of what a process said before it ended: the cause, where Java names one, or its last line."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if line.startswith("Caused by:")] or lines
    return f"{type(error).__name__}: {causes[-1].strip() if causes else 'it said nothing'}"[:REASON_MAX]


if __name__ == "__main__":
    main()
