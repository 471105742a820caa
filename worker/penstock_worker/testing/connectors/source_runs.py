"""What every source has to hold as users run it: `penstock run`, killed in parts and whole, and gone on with
by another number of workers.

Neighbours: `source_suite` is the same on the reader alone, `tested_run` starts and kills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.dataflow.json_rows import JsonRows
from penstock_worker.testing.connectors.passing import ROW_S_VARIABLE
from penstock_worker.testing.connectors.tested_run import TestedRun
from penstock_worker.testing.connectors.tested_topology import CODE, operator, planned
from penstock_worker.values.rows import OutputShape

ALL_S = 8.0
"""What the rows take together, so that there are some left to read at each kill."""
KILLS = ("task", "store", "run", "worker", "task")
"""Who is killed, one after the other, each behind more rows. Behind "run" comes another number of workers."""


class SourceRuns:
    """To be subclassed. `topology_source` and `expected` are those of `SourceConformance`, with more rows:
    some have to be left to read when the last one is killed, and a thousand are read at once. A run takes a
    minute or two.
    """

    def topology_source(self, folder: Path) -> Mapping[str, Any]:
        raise NotImplementedError("topology_source: say what the source under test is")

    def expected(self, folder: Path) -> Mapping[str, Sequence[Any]]:
        raise NotImplementedError("expected: say which rows the source under test has")

    def test_a_run_that_is_killed_everywhere_and_goes_on_with_more_workers_reads_each_row_once(
        self, tmp_path: Path
    ) -> None:
        source = self.topology_source(tmp_path)
        reading = operator("in", source=dict(source))
        seen = {"files": {"path": "seen/", "format": "jsonl"}}
        schema = planned(tmp_path, [reading, operator("seen", "in", sink=seen)]).stage("in").out.schema
        slowed = operator("slowed", "in", map=f"{CODE}:slowly", outputSchema=schema.ddl())
        plan = planned(tmp_path, [reading, slowed, operator("seen", "slowed", sink=seen)])
        ((sink, _),) = plan.stage("in").all_sinks()

        wire, lines = OutputShape(schema), JsonRows(schema)
        wanted: dict[Path, bytes] = {}
        rows = 0
        for part, of in self.expected(tmp_path).items():
            (file,) = sink.files("in", [part], tmp_path)
            wanted[file] = lines.lines(wire.wire_rows(list(of)))
            rows += len(of)

        def written() -> int:
            return sum(file.read_bytes().count(b"\n") for file in wanted if file.exists())

        env = {ROW_S_VARIABLE: str(ALL_S / rows)}
        with TestedRun(tmp_path / "topology.yaml") as run:
            run.start(1, env)
            for victim in KILLS:
                before = written()
                assert before < rows, (
                    f"all {rows} rows were read before a {victim} was killed: let the source under test have "
                    f"{2 * rows} or more"
                )
                run.until(lambda: written() > before, f"row behind the first {before}")  # noqa: B023
                run.kill(victim, "in")
                if victim == "run":
                    run.start(2, env)
            run.finish(lambda: written() >= rows)
        for file, content in wanted.items():
            found = file.read_bytes() if file.exists() else b""
            assert found == content, f"{file.name}: {_told(found, content)}"


def _told(found: bytes, wanted: bytes) -> str:
    there, right = found.splitlines(), wanted.splitlines()
    for place, (one, other) in enumerate(zip(there, right, strict=False)):
        if one != other:
            return f"row {place} is {one.decode()}, and has to be {other.decode()}"
    return f"{len(there)} rows instead of {len(right)}"
