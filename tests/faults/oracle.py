"""What must be in the sinks of a drawn topology, counted apart from Penstock, and how what is there differs.

Nothing depends on the order in which rows of several producers meet. What must hold whatever that was: the
rows are there, each once; those of one key are numbered 1 to n by its state, one after the other in the sink;
rows of one producer come in its order; the list in a key's state is that of its last rows; no line is torn.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults.topology import Keyed, Topology
from faults.user_code import RECENT

_SHOWN = 3

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many rows or lines are wrong in which way; `examples` say more, a few for each way."""

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    torn: int = 0
    wrong: int = 0
    """Rows whose list in state, or map in state, is not what it must be."""
    examples: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.torn or self.wrong)

    def words(self) -> str:
        ways = {name: getattr(self, name) for name in ("lost", "doubled", "reordered", "torn", "wrong")}
        return ", ".join(f"{count} {name}" for name, count in ways.items() if count) or "nothing"


def judge(topology: Topology, folder: Path) -> Verdict:
    """Compare all sinks below `folder`/out with what a plain count gives."""
    verdicts = [judge_sink(wanted, folder / "out" / sink) for sink, wanted in expected(topology).items()]
    return Verdict(
        rows=sum(verdict.rows for verdict in verdicts),
        lost=sum(verdict.lost for verdict in verdicts),
        doubled=sum(verdict.doubled for verdict in verdicts),
        reordered=sum(verdict.reordered for verdict in verdicts),
        torn=sum(verdict.torn for verdict in verdicts),
        wrong=sum(verdict.wrong for verdict in verdicts),
        examples=tuple(example for verdict in verdicts for example in verdict.examples),
    )


def expected(topology: Topology) -> dict[str, Counter[tuple[str, str]]]:
    """Sink -> how often each (line, trail) must stand in it."""
    rows: dict[str, Counter[tuple[str, str]]] = {}
    for source in topology.sources:
        rows[source.rows_name] = Counter(
            (f"{source.name}.{partition}.{number}.{copy}", source.name)
            for partition in range(source.partitions)
            for number in range(source.lines)
            for copy in range(source.factor)
        )
    for operator in topology.inner:
        inputs = operator.inputs if isinstance(operator, Keyed) else (operator.input,)
        mark = f">{operator.name}" if isinstance(operator, Keyed) else "+"
        rows[operator.name] = Counter()
        for name in inputs:
            for (line, trail), count in rows[name].items():
                rows[operator.name][line, trail + mark] += count
    wanted: dict[str, Counter[tuple[str, str]]] = {}
    for sink in topology.sinks:
        wanted[sink.name] = Counter()
        for name in sink.inputs:
            wanted[sink.name].update(rows[name])
    return wanted


def judge_sink(wanted: Counter[tuple[str, str]], folder: Path) -> Verdict:
    """One sink's files against what must be in them."""
    found: Counter[tuple[str, str]] = Counter()
    keys: dict[str, list[Row]] = defaultdict(list)
    examples: dict[str, list[str]] = defaultdict(list)
    torn = 0
    for path in sorted(folder.glob("*.jsonl")):
        for number, row in _lines(path):
            if row is None:
                torn += 1
                examples["torn"].append(f"torn: {path}, line {number}")
                continue
            found[str(row["line"]), str(row["trail"])] += 1
            keys[str(row["via"])].append(row)
    lost, doubled = wanted - found, found - wanted
    examples["lost"] = [f"lost: {line} by {trail}, {folder.name}" for line, trail in lost]
    examples["doubled"] = [f"doubled: {line} by {trail}, {folder.name}" for line, trail in doubled]
    reordered = wrong = 0
    for via, rows in keys.items():
        for what in _out_of_order(rows):
            reordered += 1
            examples["reordered"].append(f"reordered: {via} {what}, {folder.name}")
        for what in _wrong_states(rows):
            wrong += 1
            examples["wrong"].append(f"wrong state: {via} {what}, {folder.name}")
    return Verdict(
        rows=found.total(),
        lost=lost.total(),
        doubled=doubled.total(),
        reordered=reordered,
        torn=torn,
        wrong=wrong,
        examples=tuple(example for listed in examples.values() for example in listed[:_SHOWN]),
    )


def _lines(path: Path) -> Iterator[tuple[int, Row | None]]:
    """The rows of a file with their line numbers, None for a line that is no row."""
    data = path.read_bytes()
    *whole, rest = data.split(b"\n")
    for number, line in enumerate(whole, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        yield number, row if isinstance(row, dict) and {"line", "trail", "via"} <= row.keys() else None
    if rest:
        yield len(whole) + 1, None


def _out_of_order(rows: Sequence[Row]) -> Iterator[str]:
    """Rows of one key that are not numbered one after the other, or behind a later one of their producer."""
    steps: dict[str, int] = {}
    for place, row in enumerate(rows, start=1):
        if row["step"] != place:
            yield f"has {row['step']} at place {place}"
        via, _, step = str(row["before"]).rpartition("#")
        if int(step) <= steps.get(via, -1):
            yield f"has {row['before']} behind {steps[via]}"
        steps[via] = max(int(step), steps.get(via, -1))


def _wrong_states(rows: Sequence[Row]) -> Iterator[str]:
    hashes = [zlib.crc32(str(row["line"]).encode()) for row in rows]
    for place, row in enumerate(rows, start=1):
        if row["recent"] != sum(hashes[max(0, place - RECENT) : place]):
            yield f"has another list at {place}"
        if row["late"]:
            yield f"has a map that was further at {place}"
