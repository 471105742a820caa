"""One suite for every source and every sink: `penstock.testing.connectors` for its users.

A test's file subclasses `SourceConformance` or `SinkConformance` (on reader and writer, in milliseconds) and
`SourceRuns` or `SinkRuns` (by `penstock run`, with kills). `docs/connectors/testing.md` shows it.
"""

import pytest

# Before they are imported: pytest then says of their assertions what was compared.
pytest.register_assert_rewrite(
    "penstock_worker.testing.connectors.read_back",
    "penstock_worker.testing.connectors.reading",
    "penstock_worker.testing.connectors.sink_runs",
    "penstock_worker.testing.connectors.sink_suite",
    "penstock_worker.testing.connectors.source_suite",
    "penstock_worker.testing.connectors.source_runs",
    "penstock_worker.testing.connectors.tested_run",
    "penstock_worker.testing.connectors.writing",
)

from penstock_worker.testing.connectors.sink_runs import SinkRuns  # noqa: E402
from penstock_worker.testing.connectors.sink_suite import SinkConformance  # noqa: E402
from penstock_worker.testing.connectors.source_runs import SourceRuns  # noqa: E402
from penstock_worker.testing.connectors.source_suite import SourceConformance  # noqa: E402

__all__ = ["SinkConformance", "SinkRuns", "SourceConformance", "SourceRuns"]
