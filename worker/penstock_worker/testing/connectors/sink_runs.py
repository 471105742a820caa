"""What every sink has to hold as users run it: `penstock run`, killed in parts and whole, and gone on with by
another number of workers; then the system outside is read.

Neighbours: `sink_suite` is the same on the writer alone, `tested_run` starts and kills.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from penstock.dataflow.ddl import parse_schema
from penstock.dataflow.json_rows import JsonRows
from penstock_worker.testing.connectors.read_back import ReadBack
from penstock_worker.testing.connectors.tested_run import TestedRun
from penstock_worker.testing.connectors.tested_topology import SHARDS, sink_operators, write_manifest
from penstock_worker.values.rows import OutputShape, RowReader

ROWS = 2400
ROWS_PER_S = 100
"""Rows that come due while nobody works are written at once behind that: so few that some are left for each
kill where a start takes its time."""
KILLS = ("task", "store", "run", "worker", "task")
"""Who is killed, one after the other, each behind more rows. Behind "run" comes another number of workers."""
FILES = 2


class SinkRuns(ReadBack):
    """To be subclassed, alone or beside `SinkConformance`: what has to be there is the same. A run takes a
    minute or two."""

    def test_a_run_that_is_killed_everywhere_and_goes_on_with_more_workers_writes_each_row_once(
        self, tmp_path: Path
    ) -> None:
        schema = parse_schema(self.schema)
        wire = OutputShape(schema).wire_rows(list(self.rows(ROWS)))
        (tmp_path / "in").mkdir()
        lines = JsonRows(schema)
        for number in range(FILES):
            of = [row for row in wire if zlib.crc32(repr(row[0]).encode()) % FILES == number]
            (tmp_path / f"in/{number}.jsonl").write_bytes(lines.lines(of))
        operators = sink_operators(self.schema, self.sink(tmp_path), ROWS_PER_S)
        manifest = write_manifest(tmp_path, operators)
        shards = tuple(f"of/{number}" for number in range(SHARDS))
        with TestedRun(manifest) as run:
            run.start(1)
            done = 0
            for victim in KILLS:
                assert done < ROWS, f"all rows were written before a {victim} was killed"

                def is_more() -> bool:
                    nonlocal done
                    before, done = done, max(done, run.completed(shards) or 0)
                    return done > before

                run.until(is_more, f"row behind the first {done}")
                run.kill(victim, "of")
                if victim == "run":
                    run.start(2)
            run.finish(lambda: False)
        self.assert_written(tmp_path, [tuple(row) for row in RowReader(schema, collected=True).rows(wire)])
