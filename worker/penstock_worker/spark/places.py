"""Where a resident task runs: at home, or on the Spark worker of another node.

Spark decides by itself where a task goes; its scheduler waits, as long as it is told to, for the executor
that a partition prefers. So a job's one partition names the executor of its node, and the task looks whether
it came there. Every Spark worker's environment has the name of its node, which Spark makes an attribute of
its executors. Neighbours: `resident_tasks` starts jobs with these, `spark.cluster` sets the waits.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext, TaskContext
from pyspark.serializers import CPickleSerializer

from penstock.errors import PermanentError
from penstock_worker.spark.jvm_watch import ending

_ATTRIBUTE = "PENSTOCK_PLACE"
ENV_PLACE = f"SPARK_EXECUTOR_ATTRIBUTE_{_ATTRIBUTE}"
"""In the environment of a Spark worker: the node's name, "" at home."""
HOME_S_MAX = 90.0
_LOOK_S = 0.05


class PlaceAway(Exception):
    """No Spark worker of that node has joined, or it is gone again."""


class Misplaced(Exception):
    """Spark has put a task elsewhere than where it was meant to run."""


class Places(Protocol):
    def has(self, node: str) -> bool:
        """Whether a task can be started there now; "" is home."""

    def one(self, given: object, node: str) -> RDD[Any]:
        """A data set of one partition with `given` in it, worked on `node`. Raises PlaceAway."""


class OnlyHome:
    """Of a session that is all in one process."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    def has(self, node: str) -> bool:
        return not node

    def one(self, given: object, node: str) -> RDD[Any]:
        if node:
            raise PlaceAway(f"the session runs no tasks on node {node}: it was started without remote tasks")
        return self._context.parallelize([given], 1)


class SparkPlaces:
    """Of a session on the worker's own master."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._scala = context._jsc.sc()  # noqa: SLF001 - pyspark has no list of executors
        self._jvm = context._jvm  # noqa: SLF001

    def await_home(self, jvm: subprocess.Popen[bytes]) -> None:
        """Until the executor of this node is up. Raises PermanentError when it does not come, or the JVM
        that is to start it ends."""
        deadline_s = time.monotonic() + HOME_S_MAX
        while not self.has(""):
            if jvm.poll() is not None:
                raise PermanentError(f"its JVM {ending(jvm.returncode)} as Spark started")
            if time.monotonic() > deadline_s:
                raise PermanentError(f"no Spark executor has come up on this node within {HOME_S_MAX:.0f} s")
            time.sleep(_LOOK_S)

    def has(self, node: str) -> bool:
        return self._location(node) is not None

    def one(self, given: object, node: str) -> RDD[Any]:
        location = self._location(node)
        if location is None:
            raise PlaceAway(f"no Spark worker of node {node} is there" if node else "the executor is away")
        serializer = CPickleSerializer()
        pair = self._jvm.scala.Tuple2(bytearray(serializer.dumps(given)), self._seq(location))
        kind = self._jvm.scala.reflect.ClassTag.apply(self._jvm.java.lang.Class.forName("[B"))
        found = self._scala.makeRDD(self._seq(pair), kind).toJavaRDD()
        return RDD(found, self._context, serializer)

    def _location(self, node: str) -> str | None:
        """As the scheduler has it: executor_HOST_ID. None while there is no such executor."""
        try:
            executors = self._scala.statusStore().executorList(True)
            for at in range(executors.size()):
                executor = executors.apply(at)
                place = executor.attributes().get(_ATTRIBUTE)
                if place.isDefined() and place.get() == node:
                    return f"executor_{executor.hostPort().rpartition(':')[0]}_{executor.id()}"
        except (Py4JError, OSError):
            # It went while it was looked at; or the JVM did.
            return None
        return None

    def _seq(self, *items: object) -> Any:
        found = self._jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)


def check_place(node: str) -> None:
    """Raises Misplaced unless this is the first attempt of a Spark task, on `node`: whatever else there is,
    the main process does not know of."""
    context = TaskContext.get()
    here = os.environ.get(ENV_PLACE, "")
    if here != node:
        raise Misplaced(f"a task for {node or 'home'} was started on {here or 'home'}")
    if context is not None and context.attemptNumber():
        raise Misplaced(f"Spark has started a task for {node or 'home'} again by itself")
