"""Finds the settings under which the peer is at its best, and freezes them in `spark_settings.json`.

`make bench-spark-sweep`. Each profile is a climb by one knob at a time from the settings that are frozen:
every alternative of a knob is measured against the best so far; one that looks better by `MARGIN` is measured
again, and kept when the mean of both is. Everything that was measured, also what lost, goes to
`results/spark_sweep.json`. Profiles: latency at 1 000/s and at 10 000/s (score: p50 + p99 of record age,
lower is better) and throughput (records per CPU-second at saturation, higher is better).

The warm-up may not be shorter: with 12 s a batch at 1 000/s still takes a second, four times what it takes
after 25 s, and the settings cannot be told apart.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench import cpu, machine, spark_side
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure
from bench.spark_peer import Settings
from bench.spark_side import PeerFailedError, SparkRun

MARGIN = 0.03
WARMUP_S = 25.0
SATURATION_RATE_PER_S = 200_000.0

_STATE = "spark.sql.streaming.stateStore"
_FILE_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
_JAVA = "spark.driver.extraJavaOptions"
VFORK = "-Djdk.lang.Process.launchMechanism=VFORK"
"""Hadoop's local file system starts a process for each permission that it sets; this makes that cheap."""

Patch = dict[str, Any]


KNOBS: dict[str, tuple[Patch, ...]] = {
    "file manager without links": (
        {
            "conf": {
                "spark.sql.streaming.checkpointFileManagerClass": (
                    f"{_FILE_MANAGERS}.FileSystemBasedCheckpointFileManager"
                )
            }
        },
    ),
    "unix sockets to Python": ({"conf": {"spark.python.unix.domain.socket.enabled": "true"}},),
    "shuffle partitions": ({"shuffle_partitions": 1}, {"shuffle_partitions": 4}),
    "source partitions": ({"source_partitions": 2},),
    "cores": ({"cores": 1}, {"cores": 3}),
    "sink": ({"sink": "writer"},),
    "no file checksums": ({"conf": {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "false"}},),
    "rare snapshots": ({"conf": {f"{_STATE}.minDeltasForSnapshot": "1000"}},),
    "changelog": ({"changelog": False},),
    "rows not counted": ({"conf": {f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false"}},),
    "process start": ({"conf": {_JAVA: VFORK}},),
    "garbage collector": (
        {"conf": {_JAVA: f"{VFORK} -XX:+UseParallelGC"}},
        {"conf": {_JAVA: f"{VFORK} -XX:+UseSerialGC"}},
    ),
    "compiler": ({"conf": {_JAVA: f"{VFORK} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}},),
    "Arrow batch": (
        {"conf": {"spark.sql.execution.arrow.maxRecordsPerBatch": "1000"}},
        {"conf": {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}},
    ),
    "state encoding": ({"conf": {f"{_STATE}.encodingFormat": "avro"}},),
    "polling delay": ({"conf": {"spark.sql.streaming.pollingDelay": "1ms"}},),
    "locality wait": ({"conf": {"spark.locality.wait": "0s"}},),
    "shuffle not compressed": (
        {"conf": {"spark.shuffle.compress": "false", "spark.shuffle.spill.compress": "false"}},
    ),
    "pipelined Python": ({"conf": {"spark.python.udf.pipelined.enabled": "true"}},),
    "state store unloaded": ({"conf": {f"{_STATE}.unloadOnCommit": "false"}},),
}
"""Knobs in the order of the climb, each with what is tried in place of what stands."""
BATCH_BOUNDS = tuple({"max_records": n} for n in (10_000, 25_000, 100_000, 200_000, 400_000))
FEW = (
    "shuffle partitions",
    "source partitions",
    "cores",
    "garbage collector",
    "Arrow batch",
    "pipelined Python",
)
"""What is tried again where a batch holds thousands of records, on top of the first profile's best."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`score` is to be minimized."""

    name: str
    rate_per_s: float
    seconds: float
    score: Callable[[SparkRun], float]
    knobs: Mapping[str, tuple[Patch, ...]]


def _latency_score(run: SparkRun) -> float:
    p50, p99 = run.records.quantile_us(0.5), run.records.quantile_us(0.99)
    return math.inf if p50 is None or p99 is None or not run.held else (p50 + p99) / 1000


def _throughput_score(run: SparkRun) -> float:
    return -run.records_per_cpu_s


PROFILES = (
    Profile("latency_1000", 1_000.0, 10.0, _latency_score, KNOBS),
    Profile("latency_10000", 10_000.0, 12.0, _latency_score, {name: KNOBS[name] for name in FEW}),
    Profile(
        "throughput",
        SATURATION_RATE_PER_S,
        20.0,
        _throughput_score,
        {"records a batch": BATCH_BOUNDS, **{name: KNOBS[name] for name in (*FEW, "sink")}},
    ),
)


def patched(settings: Settings, patch: Patch) -> Settings:
    """`settings` with a knob turned; configuration is added to what is there."""
    return replace(settings, **{**patch, "conf": {**settings.conf, **patch.get("conf", {})}})


def _measured(profile: Profile, settings: Settings, screen: Screen, what: str) -> dict[str, Any]:
    """One run as an entry of the sweep's results; a peer that fails under a setting has no score."""
    with screen.step(f"{profile.name}: {what}"), scratch("sweep") as folder:
        try:
            run = spark_side.measure(
                settings,
                profile.rate_per_s,
                WARMUP_S,
                seconds_per_figure(profile.seconds),
                folder,
                screen.tell,
            )
        except PeerFailedError as error:
            screen.note(f"failed: {str(error).splitlines()[-1:]}")
            return {"what": what, "settings": asdict(settings), "score": None, "failed": str(error)[-600:]}
    score = profile.score(run)
    entry = {
        "what": what,
        "settings": asdict(settings),
        "score": None if score == math.inf else round(score, 2),
        "p50_ms": _ms(run.records.quantile_us(0.5)),
        "p99_ms": _ms(run.records.quantile_us(0.99)),
        "held": run.held,
        "processed_per_s": round(run.processed_per_s, 1),
        "records_per_cpu_s": round(run.records_per_cpu_s, 1),
        "cores_used": round(run.cores_used, 2),
        "batches": run.batches,
        "batch_ms": run.batch_ms,
    }
    screen.note(
        f"{what}: score {entry['score']}, p50 {entry['p50_ms']} ms, p99 {entry['p99_ms']} ms, "
        f"{entry['records_per_cpu_s']} records per CPU-second"
    )
    return entry


def _ms(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds / 1000, 1)


def climb(
    profile: Profile, start: Settings, screen: Screen
) -> Iterator[tuple[Settings, list[dict[str, Any]]]]:
    """The best settings so far and everything measured so far, after each run."""
    best = start
    entry = _measured(profile, best, screen, "start")
    best_score = _score_of(entry)
    log = [{**entry, "kept": True}]
    yield best, log
    for knob, patches in profile.knobs.items():
        for patch in patches:
            candidate = patched(best, patch)
            if candidate == best:
                continue
            entry = _measured(profile, candidate, screen, f"{knob} {patch}")
            score = _score_of(entry)
            if _is_better(score, best_score):
                log.append({**entry, "kept": False})
                entry = _measured(profile, candidate, screen, f"{knob} {patch}, again")
                score = (score + _score_of(entry)) / 2
            better = _is_better(score, best_score)
            log.append({**entry, "kept": better})
            if better:
                best, best_score = candidate, score
            yield best, log


def _score_of(entry: Mapping[str, Any]) -> float:
    return math.inf if entry["score"] is None else float(entry["score"])


def _is_better(score: float, best_score: float) -> bool:
    return score < best_score and (math.isinf(best_score) or best_score - score > MARGIN * abs(best_score))


def main() -> None:
    """Sweep the profiles named (default: all); one that has no settings yet starts from those for 1 000/s."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="*", default=[profile.name for profile in PROFILES])
    names = parser.parse_args().profiles
    chosen = [profile for profile in PROFILES if profile.name in names]
    cpu.adopt_orphans()
    screen = Screen(sum(1 + sum(len(p) for p in profile.knobs.values()) for profile in chosen))
    path = RESULTS / "spark_sweep.json"
    frozen = json.loads(spark_side.SETTINGS.read_text()) if spark_side.SETTINGS.exists() else {}
    swept = json.loads(path.read_text()) if path.exists() else {}
    RESULTS.mkdir(exist_ok=True)
    for profile in chosen:
        known = frozen.get(profile.name) or frozen.get("latency_1000")
        start = Settings() if known is None else Settings(**known["settings"])
        taken = {"at": time.strftime("%Y-%m-%d"), "machine": machine.description()}
        for best, log in climb(profile, start, screen):
            frozen[profile.name] = {"settings": asdict(best), **taken}
            swept[profile.name] = {**taken, "measured": log}
            spark_side.SETTINGS.write_text(json.dumps(frozen, indent=2) + "\n")
            path.write_text(json.dumps(swept, indent=2) + "\n")


if __name__ == "__main__":
    main()
