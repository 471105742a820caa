"""A LatencySLA makes tasks where load needs them, in pods that stay, and says why in `kubectl describe`.

Records wait instead of computing: two cores then have room for the tasks of a few slices of CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from e2e.harness.cluster import Cluster, restarts
from e2e.harness.installation import Installation
from e2e.harness.shared_folder import SharedFolder
from e2e.harness.topologies import FINISH_S, Running, Sizes
from e2e.harness.watching import Object, wait_until
from e2e.harness.zipf_calculator import ZipfCalculator

RECORDS = 9_000
PER_SECOND = 150
"""A minute of them: on a busy machine tasks move more than once before the bound is kept again."""
SERVICE_US = 10_000
"""One task serves 100 a second: two tasks at least are needed, and three with the margin."""
SCALE_S = 60
MET_S = 60
WAITING = """

def work(service_time_us, payload):
    time.sleep(service_time_us / 1e6)
    return payload
"""


def calculating(cluster: Cluster, shared: SharedFolder, name: str, code: str) -> ZipfCalculator:
    """One worker with room for five tasks, of which the calculator begins with one. Its bound is for waiting
    and work: a commit that has to be on disk takes as long as this machine's disk wants."""
    sizes = Sizes(workers=1, task_cpu="200m", cores_min="200m", cores_max="1", tasks=1, durability="Process")
    source = {
        "records": RECORDS,
        "ratePerSecond": PER_SECOND,
        "serviceTime": f"{SERVICE_US}us",
        "partitions": 1,
    }
    made = ZipfCalculator.made(cluster, shared, name, code, source, sizes)
    made.manifest["spec"]["operators"][0]["tasks"] = {"min": 1, "max": 1}
    return made


def latency_sla(name: str, topology: str, **spec: object) -> Object:
    fields = {"topology": topology, "operator": "calculator", "latency": "250ms", "policy": "StreamSwitch"}
    return {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "LatencySLA",
        "metadata": {"name": name},
        "spec": fields | spec,
    }


def condition(found: Object, kind: str) -> Object:
    conditions = found.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


@pytest.fixture
def apply_sla(cluster: Cluster) -> Iterator[Callable[[Object], str]]:
    """Applies LatencySLAs, and deletes them at the test's end."""
    names: list[str] = []

    def apply(manifest: Object) -> str:
        names.append(manifest["metadata"]["name"])
        cluster.apply(manifest)
        return names[-1]

    yield apply
    for name in names:
        cluster.delete("latencysla", name)


@pytest.mark.alone
def test_an_sla_makes_tasks_in_the_pod_that_stands_and_explains_them(
    cluster: Cluster,
    shared: SharedFolder,
    run: Callable[[Running], None],
    calculators_code: Callable[..., str],
    apply_sla: Callable[[Object], str],
) -> None:
    running = calculating(cluster, shared, "promised", calculators_code("waiting-code", WAITING))
    name = apply_sla(latency_sla("quick", running.name))
    run(running)
    (before,) = running.wait_workers(1)
    cluster.wait(
        "latencysla",
        name,
        "the calculator has two tasks or more",
        lambda found: int(found.get("status", {}).get("tasks", 0)) >= 2,
        SCALE_S,
    )
    met = cluster.wait(
        "latencysla",
        name,
        "the bound is kept again",
        lambda found: condition(found, "SLAMet").get("status") == "True",
        MET_S,
    )
    assert condition(met, "Ready")["reason"] == "Kept"
    assert [one for one in met["status"]["decisions"] if one["treatment"] == "ScaleOut"]
    described = cluster.kubectl("describe", "latencysla", name)
    assert "ScaleOut" in described
    assert "Reason:" in described
    running.wait_phase("Finished", FINISH_S)
    assert running.faults() == []
    pods = [pod for pod in running.workers() if pod["metadata"]["uid"] == before["metadata"]["uid"]]
    assert [restarts(pod) for pod in pods] in ([], [0]), "no container was started anew"


def test_an_sla_that_names_nothing_says_so(
    cluster: Cluster, installation: Installation, apply_sla: Callable[[Object], str]
) -> None:
    name = apply_sla(latency_sla("lost", "no-such-topology"))

    def told() -> bool:
        return condition(cluster.get("latencysla", name), "Ready").get("reason") == "TopologyMissing"

    wait_until("the LatencySLA says that its Topology is missing", told, 30)
