"""What Penstock gives to tests of others: `TopologyTest` and `ProcessorTest` for users' own topologies and
processors, `connectors` beside this for their sources and sinks. Nothing of the product imports it.

It drives the worker's stages, so it lives with them: this is a door of core that leads to the worker (record
0050).
"""

from penstock_worker.testing.topologies import DeadLetter, Misuse, OperatorFailed, ProcessorTest, TopologyTest

__all__ = ["DeadLetter", "Misuse", "OperatorFailed", "ProcessorTest", "TopologyTest"]
