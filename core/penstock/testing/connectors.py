"""One suite for every source and every sink, under the name that their authors import.

It drives readers and writers, so it lives with them: this is a door, the only one of core that leads to the
worker (record 0041).
"""

from penstock_worker.testing.connectors import SinkConformance, SinkRuns, SourceConformance, SourceRuns

__all__ = ["SinkConformance", "SinkRuns", "SourceConformance", "SourceRuns"]
