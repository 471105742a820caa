"""`make bench-sources`: from a topic of Kafka through one keyed count into another, beside Spark.

Penstock writes at least once, as Spark's sink does, where the two are compared; exactly once stands beside.
Ages count from when a record was due until a reader of committed messages has the total that counts it.
Records for each CPU-second are told twice: at a rate at which each side's p99 is to be within a second (the
settings' file has these rates), and at its best, over a backlog. The broker's CPU is on neither side and
stands beside. A run that is thrown away comes first: the broker's JVM takes more for the same work at its
beginning, and whoever came first would wait for it. Behind the run that is exactly once, BENCH_KILLS counting
tasks are killed while records go on; `lost` and `duplicated` are of all its rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import cpu, kafka_runs, kafka_sides, machine
from bench.kafka_feed import PARTITIONS, Feed, fill
from bench.kafka_runs import Backlog, Measured, Worked
from bench.kafka_sides import Start
from bench.screen import Screen, scratch, seconds_per_figure, show
from rich.table import Table

from backends.kafka_broker import KafkaBroker

SECONDS = 8.0
RATE_PER_S = 5_000
PENSTOCK_WARMUP_S = 5.0
BROKER_WARMUP_S = 15.0
PENSTOCK_BACKLOG_WARMUP_S = 2.0
SPARK_WARMUP_S = 20.0
SPARK_BACKLOG_WARMUP_S = 8.0
KILLS = 5
P99_MS_MAX = 1_000.0
BACKLOG_PER_S = 200_000
"""A backlog has so many records for each second that it is worked: more than any side takes."""
BACKLOG_MAX = 3_000_000
STEPS = 8
JAVA_OPTIONS = ("-XX:+UseSerialGC",)
"""The broker's: unlike in tests it runs for long enough that its second compiler pays."""
PROMISES = {"penstock": "at least once", "penstock_exactly_once": "exactly once", "spark": "at least once"}


def main() -> None:
    """Measure, show, and print the result as the last line."""
    cpu.adopt_orphans()
    with scratch("kafka") as folder, closing(KafkaBroker(folder, java_options=JAVA_OPTIONS)) as broker:
        broker.start()
        result = measure(broker, seconds_per_figure(SECONDS), int(os.environ.get("BENCH_KILLS", KILLS)))
    show(table(result), result)


def measure(broker: KafkaBroker, seconds: float, kills: int) -> dict[str, Any]:
    """All runs, one after the other."""
    settings = kafka_sides.settings()
    own, peer, rates = settings["penstock"], settings["spark"], settings["within_1s_per_s"]
    screen = Screen(STEPS)

    def paced(name: str, start: Start, rate_per_s: int, warmup_s: float, kills: int = 0) -> Measured:
        with screen.step(f"{name}, {rate_per_s:,}/s"), scratch("kafka-side") as folder:
            run = kafka_runs.paced(broker, start, rate_per_s, warmup_s, seconds, folder, screen.tell, kills)
        screen.note(
            f"{'kept up' if run.kept_up else 'not kept up'}: p50 {run.ages.p50_ms} ms, "
            f"p99 {run.ages.p99_ms} ms, {run.per_cpu_s:,.0f} per CPU-second; "
            f"lost {run.kept.lost}, duplicated {run.kept.duplicated}"
        )
        return run

    def backlog(name: str, work: Callable[[Path], Worked]) -> Worked:
        with screen.step(f"{name}, a backlog"), scratch("kafka-side") as folder:
            run = work(folder)
        screen.note(f"{run.per_s:,.0f}/s, {run.per_cpu_s:,.0f} per CPU-second")
        return run

    at_least = kafka_sides.penstock(broker, "AtLeastOnce", own["latency"])
    exactly = kafka_sides.penstock(broker, "ExactlyOnce", own["latency"])
    spark = kafka_sides.spark(broker, peer["latency"])
    paced("thrown away", at_least, RATE_PER_S, BROKER_WARMUP_S)
    soon = paced("Penstock, at least once", at_least, RATE_PER_S, PENSTOCK_WARMUP_S)
    exact = paced("Penstock, exactly once", exactly, RATE_PER_S, PENSTOCK_WARMUP_S, kills)
    within = paced("Penstock, at least once", at_least, rates["penstock"], PENSTOCK_WARMUP_S)
    peer_within = paced("Spark, at least once", spark, rates["spark"], SPARK_WARMUP_S)

    full = filled(broker, seconds, screen)
    reading = backlog(
        "Penstock, reading alone",
        lambda folder: kafka_runs.read_alone(full, PENSTOCK_BACKLOG_WARMUP_S, seconds, folder, screen.tell),
    )
    best = backlog(
        "Penstock, at least once",
        lambda folder: kafka_runs.worked_by_penstock(
            full, own["best"], PENSTOCK_BACKLOG_WARMUP_S, seconds, folder, screen.tell
        ),
    )
    peer_best = backlog(
        "Spark, at least once",
        lambda folder: kafka_runs.worked_by_spark(
            full, peer["best"], SPARK_BACKLOG_WARMUP_S, seconds, folder, screen.tell
        ),
    )
    return {
        "bench": "sources",
        "kafka_to_kafka": {
            "penstock_per_cpu_s": round(within.per_cpu_s, 1),
            "spark_per_cpu_s": round(peer_within.per_cpu_s, 1),
            "ratio": round(within.per_cpu_s / peer_within.per_cpu_s, 2),
            "p50_ms": soon.ages.p50_ms,
            "p99_ms": soon.ages.p99_ms,
            "exactly_once_p99_ms": exact.ages.p99_ms,
        },
        "kafka_read_per_cpu_s": round(reading.per_cpu_s, 1),
        "lost": sum(run.kept.lost for run in (soon, exact, within)),
        "duplicated": exact.kept.duplicated,
        "kills": kills,
        "promises": PROMISES,
        "each_within_1s": all(is_within(run) for run in (within, peer_within)),
        "at_best": {
            "penstock_per_cpu_s": round(best.per_cpu_s, 1),
            "spark_per_cpu_s": round(peer_best.per_cpu_s, 1),
            "ratio": round(best.per_cpu_s / peer_best.per_cpu_s, 2),
        },
        "paced": {
            f"penstock_at_{RATE_PER_S}": told(RATE_PER_S, soon),
            f"penstock_exactly_once_at_{RATE_PER_S}": told(RATE_PER_S, exact),
            "penstock_within_1s": told(rates["penstock"], within),
            "spark_within_1s": told(rates["spark"], peer_within),
        },
        "backlog": {
            "penstock_reading": rounded(asdict(reading)),
            "penstock": rounded(asdict(best)),
            "spark": rounded(asdict(peer_best)),
        },
        "settings": settings,
        "seconds": seconds,
        "machine": machine.description(),
    }


def filled(broker: KafkaBroker, seconds: float, screen: Screen) -> Backlog:
    """A topic with what no side works off in that time, all in it at once."""
    records = min(BACKLOG_MAX, int(BACKLOG_PER_S * (seconds + PENSTOCK_BACKLOG_WARMUP_S)))
    topic = broker.fresh_topic(PARTITIONS)
    screen.note(f"{records:,} records go into a topic")
    fill(Feed(broker.bootstrap, topic, ""), records)
    return Backlog(broker, topic, records)


def is_within(run: Measured) -> bool:
    """Its p99 is within a second, and nothing piled up."""
    p99_ms = run.ages.p99_ms
    return run.kept_up and p99_ms is not None and p99_ms <= P99_MS_MAX


def told(rate_per_s: int, run: Measured) -> dict[str, Any]:
    """A paced run as the result has it."""
    return {
        "rate_per_s": rate_per_s,
        "p50_ms": run.ages.p50_ms,
        "p99_ms": run.ages.p99_ms,
        "kept_up": run.kept_up,
        "lost": run.kept.lost,
        "duplicated": run.kept.duplicated,
        **rounded(
            {
                "per_s": run.per_s,
                "per_cpu_s": run.per_cpu_s,
                "cores_used": run.cores_used,
                "broker_cores": run.broker_cores,
            }
        ),
    }


def rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}


def table(result: dict[str, Any]) -> Table:
    """For people: a line a run."""
    names = {
        f"penstock_at_{RATE_PER_S}": "Penstock, at least once",
        f"penstock_exactly_once_at_{RATE_PER_S}": "Penstock, exactly once",
        "penstock_within_1s": "Penstock, at least once",
        "spark_within_1s": "Spark, at least once",
    }
    found = Table(title="Kafka to Kafka through one keyed count")
    found.add_column("system")
    for header in ("records/s", "p50 ms", "p99 ms", "per CPU-second", "cores", "broker's cores"):
        found.add_column(header, justify="right")
    for name, label in names.items():
        run = result["paced"][name]
        found.add_row(
            label,
            f"{run['rate_per_s']:,}" + ("" if run["kept_up"] else ", not kept up"),
            str(run["p50_ms"]),
            str(run["p99_ms"]),
            *costs(run),
        )
    found.add_section()
    labels = {"penstock": "Penstock, a backlog", "spark": "Spark, a backlog"}
    for name, label in {**labels, "penstock_reading": "Penstock, reading alone"}.items():
        run = result["backlog"][name]
        found.add_row(label, f"{run['per_s']:,.0f}", "", "", *costs(run))
    exact = result["paced"][f"penstock_exactly_once_at_{RATE_PER_S}"]
    found.caption = (
        f"{result['kafka_to_kafka']['ratio']} times Spark's records for each CPU-second, both soon; "
        f"{result['at_best']['ratio']} times, both at their best.\n"
        f"Exactly once, over {result['kills']} kills: {exact['lost']} lost, {exact['duplicated']} doubled."
    )
    return found


def costs(run: dict[str, float]) -> tuple[str, str, str]:
    return f"{run['per_cpu_s']:,.0f}", f"{run['cores_used']:.2f}", f"{run['broker_cores']:.2f}"


if __name__ == "__main__":
    main()
