"""Tests of users' own topologies and processors: `penstock.testing` for its users.

They run here on the worker's own stages and task loop, over the store's twin, in virtual time.
`docs/testing.md` shows it.
"""

from penstock_worker.testing.topologies.failures import Misuse, OperatorFailed
from penstock_worker.testing.topologies.kept_letters import DeadLetter
from penstock_worker.testing.topologies.processor_test import ProcessorTest
from penstock_worker.testing.topologies.topology_test import TopologyTest

__all__ = ["DeadLetter", "Misuse", "OperatorFailed", "ProcessorTest", "TopologyTest"]
