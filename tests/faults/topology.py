"""Draws a topology from a seed, and writes its manifest, its input and its user code into a folder.

Sources are text files at a pace, so that rows are always due while faults strike; every partition goes round
all keys, so that every shard with a key gets a row within `rhythm_s` as long as one partition is read. The
graph: one or two sources, one to three keyed stages that take from sources and from each other (fan-out,
fan-in, diamonds), steps between, one sink or several. Neighbours: `oracle` reads the same `Topology`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from faults import user_code

LINES_PER_S = 100
"""Of one partition."""
ROW = (
    "via string, step long, key string, grp string, line string, trail string, before string, "
    "recent long, late boolean"
)
_MODULE = "fault_code"
_PARTITIONS_MAX = 4
"""Of all sources together: two cores have to bear it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A source `name` and its step `rows_name`, which makes `factor` rows of a line."""

    name: str
    partitions: int
    lines: int
    """Of each partition."""
    factor: int
    tasks: int

    @property
    def rows_name(self) -> str:
        return f"{self.name}-rows"


@dataclass(frozen=True, slots=True)
class Keyed:
    """A keyed stage. `inputs` are names of what it reads."""

    name: str
    inputs: tuple[str, ...]
    key: tuple[str, ...]
    shards: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """A step behind a keyed stage."""

    name: str
    input: str


@dataclass(frozen=True, slots=True)
class Sink:
    name: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """What is run. Operators are listed inputs first."""

    seed: int
    workers: int
    durability: str
    sources: tuple[Source, ...]
    inner: tuple[Keyed | Stamp, ...]
    sinks: tuple[Sink, ...]

    @property
    def keyed(self) -> tuple[Keyed, ...]:
        return tuple(operator for operator in self.inner if isinstance(operator, Keyed))

    @property
    def stamped(self) -> dict[str, str]:
        """Step -> the keyed stage that it is part of."""
        return {operator.name: operator.input for operator in self.inner if isinstance(operator, Stamp)}

    @property
    def rows(self) -> int:
        """That come from all sources."""
        return sum(source.partitions * source.lines * source.factor for source in self.sources)

    @property
    def rhythm_s(self) -> float:
        """In so much time a partition comes round to every key."""
        return user_code.KEYS / LINES_PER_S

    def shards(self) -> dict[str, list[str]]:
        """The shards of all sources and keyed stages."""
        found = {
            source.name: [_shard(source, n) for n in range(source.partitions)] for source in self.sources
        }
        return found | {
            stage.name: [f"{stage.name}/{n}" for n in range(stage.shards)] for stage in self.keyed
        }

    def sources_of(self, stage: Keyed) -> tuple[Source, ...]:
        """Those that a stage reads with nothing between."""
        return tuple(source for source in self.sources if source.rows_name in stage.inputs)

    def words(self) -> str:
        """In short, for people."""
        edges = [(operator.name, operator.inputs) for operator in self.keyed]
        edges += [(sink.name, sink.inputs) for sink in self.sinks]
        graph = " ".join(f"{name}<{','.join(inputs)}" for name, inputs in edges)
        partitions = "+".join(str(source.partitions) for source in self.sources)
        tasks = "+".join(str(stage.tasks) for stage in self.keyed)
        return f"{self.durability}, {self.workers} w, {partitions} parts, {tasks} tasks, {graph}"


def draw(seed: int, lines: int, *, workers: Sequence[int] = (1, 2, 3)) -> Topology:
    """The topology of `seed`, each partition of `lines` lines."""
    chance = random.Random(f"topology {seed}")
    count = chance.choice(list(workers))
    sources: list[Source] = []
    for number in range(chance.choice([1, 1, 2])):
        room = _PARTITIONS_MAX - sum(source.partitions for source in sources)
        # With a partition for each worker the others have input whoever is hit.
        partitions = min(chance.randint(max(1, min(count, 2)), 3), room)
        factor = chance.choice([1, 1, 2])
        sources.append(Source(f"s{number}", partitions, lines // factor, factor, min(count, partitions)))
    inner: list[Keyed | Stamp] = []
    outlets = [source.rows_name for source in sources]
    ends: list[str] = []
    for name in "abc"[: chance.randint(1, 3)]:
        inputs = _inputs(chance, outlets, [source.rows_name for source in sources], ends)
        key = chance.choice([("key",), ("grp",), ("key", "grp")])
        stage = Keyed(name, inputs, key, chance.choice([1, 2, 4, 8, 16]), chance.randint(1, 3))
        inner.append(stage)
        out = stage.name
        if chance.random() < 0.3:
            out = f"{name}-stamped"
            inner.append(Stamp(out, name))
        outlets.append(out)
        ends = [end for end in ends if end not in inputs] + [out]
    return Topology(
        seed,
        count,
        chance.choice(["Process", "Process", "Disk"]),
        tuple(sources),
        tuple(inner),
        tuple(_sinks(chance, ends, [out for out in outlets[len(sources) :] if out not in ends])),
    )


def _inputs(
    chance: random.Random, outlets: Sequence[str], first: Sequence[str], ends: Sequence[str]
) -> tuple[str, ...]:
    """The first keyed stage reads all sources, so that none is left over, a later one some of what there
    is."""
    if not ends:
        return tuple(first)
    return tuple(sorted(chance.sample(list(outlets), chance.randint(1, min(2, len(outlets))))))


def _sinks(chance: random.Random, ends: Sequence[str], between: Sequence[str]) -> list[Sink]:
    """What nobody reads is written: into one sink together or one each; some of what is read as well."""
    written = [*ends, *(out for out in between if chance.random() < 0.5)]
    if len(written) > 1 and chance.random() < 0.5:
        return [Sink("out", tuple(written))]
    return [Sink(f"out{number}", (name,)) for number, name in enumerate(written)]


# --- on disk ---------------------------------------------------------------------------------------


def write(topology: Topology, folder: Path) -> Path:
    """Manifest, input and code; answers the manifest."""
    for source in topology.sources:
        for partition in range(source.partitions):
            file = folder / _shard(source, partition).partition("/")[2]
            file.parent.mkdir(parents=True, exist_ok=True)
            text = (f"{source.name} {partition} {n} {source.factor}\n" for n in range(source.lines))
            file.write_text("".join(text), encoding="utf-8")
    shutil.copy(user_code.__file__, folder / f"{_MODULE}.py")
    manifest = folder / "topology.yaml"
    manifest.write_text(yaml.safe_dump(document(topology), sort_keys=False), encoding="utf-8")
    return manifest


def rates(topology: Topology, lines_per_s: float) -> list[str]:
    """Options of `penstock run` that give every partition another rate."""
    return [
        part
        for source in topology.sources
        for part in ("--set", f"{source.name}.source.files.ratePerSecond={lines_per_s * source.partitions}")
    ]


def document(topology: Topology) -> dict[str, object]:
    """The manifest."""
    operators: list[dict[str, object]] = []
    for source in topology.sources:
        files = {
            "glob": f"input/{source.name}-*.txt",
            "format": "text",
            "ratePerSecond": LINES_PER_S * source.partitions,
        }
        tasks = {"min": 1, "initial": source.tasks}
        step: dict[str, object] = {
            "name": source.rows_name,
            "inputs": [source.name],
            "map": f"{_MODULE}:parse",
            "outputSchema": ROW,
        }
        operators += [{"name": source.name, "source": {"files": files}, "tasks": tasks}, step]
    for operator in topology.inner:
        if isinstance(operator, Stamp):
            stamp = {"inputs": [operator.input], "map": f"{_MODULE}:stamp", "outputSchema": ROW}
            operators.append({"name": operator.name, **stamp})
            continue
        operators.append(
            {
                "name": operator.name,
                "inputs": list(operator.inputs),
                "keyBy": list(operator.key),
                "processor": f"{_MODULE}:{operator.name.upper()}",
                "outputSchema": ROW,
                "shards": operator.shards,
                "tasks": {"min": 1, "initial": operator.tasks},
            }
        )
    operators += [
        {"name": sink.name, "inputs": list(sink.inputs), "sink": {"files": {"path": f"out/{sink.name}"}}}
        for sink in topology.sinks
    ]
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": f"faults-{topology.seed}"},
        "spec": {
            "code": {"module": _MODULE},
            "durability": topology.durability,
            "workers": {"min": topology.workers, "max": 3, "memory": "1Gi"},
            "operators": operators,
        },
    }


def _shard(source: Source, partition: int) -> str:
    return f"{source.name}/input/{source.name}-{partition}.txt"
