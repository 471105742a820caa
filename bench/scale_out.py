"""`make bench-scale-out`: from a load step that breaks the SLA to the first record on more capacity, and to
the SLA kept again.

Penstock runs under `penstock run --sla` with StreamSwitch: a record's service time is waited, so that a task
more really helps on two cores. Three marks, each a run of its own: another task in a worker that stands;
another worker that stands warm, since the cores of the first are given out; a new worker (locally a process
tree with a Spark start, what a new pod is on Kubernetes). The peer is Flink with its adaptive scheduler, told
at the very moment of the step to use more subtasks. Rows are seen from outside, as they arrive in the files
of the sink. All records must come out, and at Penstock each once.

Neighbours: `waiting.Step` and `topologies/stepping.yaml` are what runs, `step_figures` the arithmetic,
`flink_side` the peer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench import flink_side, machine, penstock_side, plots, step_figures
from bench.flink_environment import Flink, install
from bench.peer_environment import NoPeerError
from bench.screen import RESULTS, Screen, scratch, seconds_per_figure, show
from bench.sink_watch import SinkWatch
from bench.step_figures import Reaction, Rows
from numpy.typing import NDArray
from rich.table import Table

from penstock.connectors.zipf import ZipfSource
from penstock.control.decision import Treatment
from penstock.dataflow.rate_trace import RateTrace, parse_rate_trace
from penstock_operator.local.kept.decision_log import read_decisions
from penstock_worker.sources.zipf import ZipfReader

SECONDS = 15.0
"""Of load after the step."""
BEFORE_PER_S = 120.0
AFTER_PER_S = 300.0
"""A task serves 200 a second."""
BEFORE_S = 12.0
BEFORE_WARM_S = 25.0
"""The warm worker has started by then."""
BOUND_US = 250_000
WINDOW_US = 1_000_000
START_AND_STOP_S = 90.0
EXIT_NO_PEER = 3
SLA = f"""
apiVersion: penstock.dev/v1alpha1
kind: LatencySLA
metadata: {{name: step}}
spec:
  topology: stepping
  operator: wait
  latency: {BOUND_US // 1000}ms
  window: {WINDOW_US // 1_000_000}s
  alertThreshold: {BOUND_US // 10_000}ms
  policy: StreamSwitch
"""
_FULL = "workers.cores.max=2"
"""The source's task and the first one of `wait`: another one needs another worker, while one may come."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One kind of more capacity. `must_tell` is what the run says where this kind was what it used."""

    title: str
    sets: tuple[str, ...]
    before_s: float
    after_factor: float
    must_tell: tuple[str, ...]


MARKS = {
    "task": Mark("another task", (), BEFORE_S, 1.0, ("scale-out",)),
    "warm_worker": Mark(
        "a warm worker",
        ("workers.max=2", "workers.warm=1", _FULL),
        BEFORE_WARM_S,
        1.0,
        ("worker w1 is warm", "scale-out", "warm worker w1 joins"),
    ),
    "new_pod": Mark(
        "a new worker",
        ("workers.max=2", _FULL),
        BEFORE_S,
        1.6,
        ("no worker has room", "worker w1 is warm", "scale-out", "warm worker w1 joins"),
    ),
}


class WrongMarkError(Exception):
    """A run did not use the kind of capacity that it was to measure; the text says what it told."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load step of one run: `text` is the trace's file."""

    before_s: float
    after_s: float

    @property
    def text(self) -> str:
        step = f"{self.before_s:g},{AFTER_PER_S:g}"
        return f"0,{BEFORE_PER_S:g}\n{step}\n{self.before_s + self.after_s:g},0\n"

    @property
    def trace(self) -> RateTrace:
        return parse_rate_trace(self.text)

    @property
    def records(self) -> int:
        return round(self.trace.total)

    def reaction(self, rows: Rows, decisions_us: Sequence[int] = ()) -> Reaction:
        """What followed the step."""
        end_s = self.before_s + self.after_s
        return step_figures.reaction(
            rows, self.trace, self.before_s, end_s, BOUND_US, WINDOW_US, decisions_us
        )


def main() -> None:
    """Measure, show, and print the result as the last line."""
    settings = flink_side.read_settings()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(len(MARKS) + 1)
    try:
        flink = install(settings.version, settings.python, screen.note)
    except NoPeerError as missing:
        sys.stderr.write(f"bench-scale-out: {missing}\n")
        sys.exit(EXIT_NO_PEER)
    reactions: dict[str, Reaction] = {}
    curves = {}
    for name, mark in MARKS.items():
        load = Load(mark.before_s, seconds * mark.after_factor)
        with screen.step(f"Penstock: {mark.title}"), scratch(f"scale-out-{name}") as folder:
            rows, decisions_us = _penstock(mark, load, folder)
        step_figures.check_whole(rows, load.records)
        reactions[name] = load.reaction(rows, decisions_us)
        curves[mark.title] = _curve(rows, load)
        screen.note(_words(reactions[name]))
    load = Load(BEFORE_S, seconds)
    with screen.step("Flink, adaptive scheduler"), scratch("scale-out-flink") as folder:
        rows = _flink(flink, settings, load, folder, screen)
    # Rows since its last checkpoint are written again: what a sink that takes part in checkpoints would hide.
    step_figures.check_whole(rows, load.records, repeats=True)
    peer = load.reaction(rows)
    curves["Flink, rescaled at the step"] = _curve(rows, load)
    screen.note(_words(peer))
    RESULTS.mkdir(exist_ok=True)
    plots.load_step(RESULTS / "scale-out.png", curves, BOUND_US / 1000)
    details = {**{name: asdict(found) for name, found in reactions.items()}, "flink": asdict(peer)}
    details |= {"seconds": seconds, "machine": machine.description()}
    (RESULTS / "scale-out-details.json").write_text(json.dumps(details, indent=2) + "\n")
    show(_table(reactions, peer), result_of(reactions, peer))


def result_of(reactions: dict[str, Reaction], peer: Reaction) -> dict[str, Any]:
    """The last line."""
    return {
        "bench": "scale-out",
        **{name: _figures(found) for name, found in reactions.items()},
        "flink": {"no_output_s": round(peer.longest_gap_ms / 1000, 3)},
    }


def check_told(told: str, mark: Mark) -> None:
    """The run told of everything that the mark is about, in this order. Raises WrongMarkError."""
    at = 0
    for words in mark.must_tell:
        found = told.find(words, at)
        if found < 0:
            raise WrongMarkError(f"{mark.title}: {words!r} is missing in:\n{told[-4000:]}")
        at = found + len(words)


def _penstock(mark: Mark, load: Load, folder: Path) -> tuple[Rows, list[int]]:
    """All rows of one run, and when scale-outs were decided. Raises RunFailedError, WrongMarkError."""
    (folder / "rates.csv").write_text(load.text)
    (folder / "sla.yaml").write_text(SLA)
    arguments = ("--sla", str(folder / "sla.yaml"))
    within_s = START_AND_STOP_S + load.before_s + load.after_s
    with (
        SinkWatch(folder / "out") as watch,
        penstock_side.running("stepping", mark.sets, folder, "waiting.py", arguments, may_end=True) as run,
    ):
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s and run.process.poll() is None:
            time.sleep(0.25)
        check_told((folder / "output.txt").read_text(errors="replace"), mark)
        decisions = read_decisions(folder / "state")
        scale_outs = [one.at_us for one in decisions if one.treatment == Treatment.SCALE_OUT]
        return watch.rows(), scale_outs


def _flink(flink: Flink, settings: flink_side.Settings, load: Load, folder: Path, screen: Screen) -> Rows:
    due_us = np.floor(load.trace.due_us(np.arange(load.records, dtype=np.float64)))
    end_s = load.before_s + load.after_s
    return flink_side.measure(
        flink, settings, _keys(load.records), due_us, load.before_s, end_s, folder, screen.tell
    )


def _keys(records: int) -> NDArray[np.int64]:
    """Those of `topologies/stepping.yaml`, by number."""
    reader = ZipfReader("records", ZipfSource(10_000, 0.5, 0, 5_000, None, None, 0.0, 1, 7))
    reader.open("records/0", b"", 0)
    keys: list[int] = []
    position = b""
    while len(keys) < records:
        batch = reader.read("records/0", position, 4096, 1 << 20, 0)
        keys += [row[0] for row in batch.rows]
        position = batch.position
    return np.array(keys[:records], dtype=np.int64)


def _curve(rows: Rows, load: Load) -> tuple[plots.Floats, plots.Floats, plots.Floats]:
    """From 3 s before the step on, ten points a second."""
    step_us = step_figures.begun_us(rows, load.trace) + load.before_s * 1e6
    at_s = np.arange(-3.0, load.after_s, 0.1)
    means_ms = (
        step_figures.window_means_us(rows.at_us, step_figures.ages_us(rows, load.trace), WINDOW_US) / 1000
    )
    seen_s = (rows.at_us - step_us) / 1e6
    last = np.searchsorted(seen_s, at_s, side="right")
    before = np.searchsorted(seen_s, at_s - 0.1, side="right")
    return at_s, means_ms[np.maximum(last - 1, 0)], (last - before) * 10.0


def _figures(found: Reaction) -> dict[str, float | None]:
    return {
        "first_record_s": _rounded(found.first_record_s),
        "sla_met_s": _rounded(found.sla_met_s),
        "longest_gap_ms": round(found.longest_gap_ms, 1),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _shown(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def _words(found: Reaction) -> str:
    return (
        f"decided after {_shown(found.decided_s)} s, first record after {_shown(found.first_record_s)} s, "
        f"SLA met after {_shown(found.sla_met_s)} s, "
        f"longest time without output {found.longest_gap_ms:.0f} ms"
    )


def _table(reactions: dict[str, Reaction], peer: Reaction) -> Table:
    before, after = f"{BEFORE_PER_S:g}", f"{AFTER_PER_S:g}"
    table = Table(
        title=f"A load step from {before}/s to {after}/s; a task serves 200/s, the SLA is 250 ms over 1 s"
    )
    table.add_column("capacity")
    for header in (
        "decided, s",
        "first record, s",
        "SLA broken, s",
        "SLA met, s",
        "longest gap, ms",
        "worst mean, ms",
    ):
        table.add_column(header, justify="right")
    titled = {MARKS[name].title: found for name, found in reactions.items()}
    for title, found in {**titled, "Flink, rescaled at the step": peer}.items():
        table.add_row(
            title,
            _shown(found.decided_s),
            _shown(found.first_record_s),
            _shown(found.broken_s),
            _shown(found.sla_met_s),
            f"{found.longest_gap_ms:,.0f}",
            f"{found.worst_mean_ms:,.0f}",
        )
    return table


if __name__ == "__main__":
    main()
