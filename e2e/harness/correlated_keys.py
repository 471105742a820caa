"""Two processors in a row whose keys belong together: each tag is of one land. Their code raises where a row
is lost, comes twice or overtakes another one of its tag, in either of them.

Neighbours: `topologies` has the sizes and what is common to topologies.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from e2e.harness.cluster import Cluster
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import FINISH_S, GROW_EVERY_S, Running, Sizes, share, sized
from e2e.harness.watching import Object

TAGS, LANDS, FILES = 48, 12, 2
ROWS_AT_ONCE = 4
"""Of each tag, each time that the files grow: about 950 rows a second. A table is carried out behind what
waits, so slow cores have to keep up with them."""
SHARDS = 16
MODULE = "correlated_keys.py"
CODE = """
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor


class Tags(StatefulProcessor):
    def init(self, handle):
        self._last = handle.getValueState("last", "number long")

    def handleInputRows(self, key, rows, timerValues):
        before = self._last.get()
        last = 0 if before is None else before[0]
        for row in rows:
            if row.number != last + 1:
                raise ValueError(f"row {row.number} of {row.tag} comes after {last}")
            last = row.number
            yield Row(land=row.land, tag=row.tag, number=row.number)
        self._last.update((last,))

    def close(self):
        pass


class Lands(StatefulProcessor):
    def init(self, handle):
        self._last = handle.getMapState("last", "tag string", "number long")
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(self, key, rows, timerValues):
        before = self._total.get()
        total = 0 if before is None else before[0]
        last = {}
        for row in rows:
            if row.tag not in last:
                known = self._last.getValue((row.tag,))
                last[row.tag] = 0 if known is None else known[0]
            if row.number != last[row.tag] + 1:
                raise ValueError(f"row {row.number} of {row.tag} comes after {last[row.tag]} in {row.land}")
            last[row.tag] = row.number
            total += 1
        for tag, number in last.items():
            self._last.updateValue((tag,), (number,))
        self._total.update((total,))
        yield Row(land=key[0], total=total)

    def close(self):
        pass
"""


def apply_code(cluster: Cluster, name: str) -> None:
    """Put the processors' code into a ConfigMap."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {MODULE: CODE}}
    )


def land_of(tag: int) -> str:
    return f"land-{tag % LANDS}"


def manifest(code: str) -> Object:
    """The topology without sizes and volumes; `code` is the ConfigMap with its code."""

    def keyed(name: str, key: str, of: str, output: str) -> Object:
        return {
            "name": name,
            "inputs": [of],
            "keyBy": [key],
            "processor": f"correlated_keys:{name.capitalize()}",
            "outputSchema": output,
            "shards": SHARDS,
            "locality": "Auto",
        }

    schema = "tag string, land string, number long"
    posts = {"glob": "/in/*.jsonl", "format": "jsonl", "schema": schema}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "correlated"},
        "spec": {
            "code": {"configMap": code},
            "operators": [
                {"name": "posts", "source": {"files": posts}},
                keyed("tags", "tag", "posts", "land string, tag string, number long"),
                keyed("lands", "land", "tags", "land string, total long"),
                {"name": "totals", "inputs": ["lands"], "sink": {"files": {"path": "/out"}}},
            ],
        },
    }


@dataclass(frozen=True)
class CorrelatedKeys(Running):
    """Rows come from files that grow (`growing`)."""

    @classmethod
    def made(cls, cluster: Cluster, shared: SharedFolder, name: str, code: str) -> CorrelatedKeys:
        """Write the first rows and the manifest; nothing is applied yet."""
        folder = shared.fresh(name)
        topology = share(sized(manifest(code), name, Sizes()), ("texts", "/in"), ("out", "/out"))
        made = cls(cluster, topology, folder)
        made._grow([0] * TAGS)
        return made

    def _grow(self, numbers: list[int]) -> None:
        """Some rows more of each tag; `numbers` are those of their last ones. All rows of a tag are in one
        file, so that they have an order."""
        for file in range(FILES):
            lines = []
            for _ in range(ROWS_AT_ONCE):
                for tag in range(file, TAGS, FILES):
                    numbers[tag] += 1
                    row = {"tag": f"tag-{tag}", "land": land_of(tag), "number": numbers[tag]}
                    lines.append(json.dumps(row) + "\n")
            with (self.folder / "texts" / f"posts-{file}.jsonl").open("a", encoding="utf-8") as posts:
                posts.write("".join(lines))

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Rows come while the block lasts, so that the input does not end."""
        ended = Event()
        numbers = [ROWS_AT_ONCE] * TAGS

        def grow() -> None:
            while not ended.wait(GROW_EVERY_S):
                self._grow(numbers)

        thread = Thread(target=grow, name="rows that come")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def expected(self) -> Counter[str]:
        """Land -> rows of it in the files as they are now."""
        return Counter(
            json.loads(line)["land"]
            for path in (self.folder / "texts").iterdir()
            for line in path.read_text(encoding="utf-8").splitlines()
        )

    def faults(self) -> list[str]:
        """What is wrong with the totals in the sink's files; empty when all is exact. A land whose shard
        changes has its totals in several files, so their order says nothing: each comes once, the last one is
        the number of its rows."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in self.rows():
            found[row["land"]].append(row["total"])
        expected = self.expected()
        faults = [f"{land} has totals that come twice" for land, all_ in found.items() if _doubled(all_)]
        for land in sorted(found.keys() | expected.keys()):
            last = max(found.get(land, [0]))
            if last != expected[land]:
                faults.append(f"{land} has {last} rows, not {expected[land]}")
        return faults

    def assert_exact(self, seconds: float = FINISH_S) -> None:
        """Wait for its end; totals are then exactly those of a plain count."""
        self.wait_phase("Finished", seconds)
        assert self.faults() == []


def _doubled(totals: list[int]) -> bool:
    return len(set(totals)) < len(totals)
