"""What must not be is refused by the API server, in a sentence; what does not fit waits and says why."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.commands import CommandFailed
from e2e.harness.installation import Installation
from e2e.harness.topologies import Sizes, WordCount, example
from e2e.harness.watching import Object

PENDING_S = 30


def refused_word_count(change: Callable[[Object], None]) -> Object:
    """The example with a change that is wrong."""
    topology = copy.deepcopy(example("word-count"))
    topology["metadata"]["name"] = "refused"
    change(topology["spec"])
    return topology


def test_a_cycle_is_refused(cluster: Cluster, installation: Installation) -> None:
    def make_cycle(spec: Object) -> None:
        spec["operators"][1]["inputs"] = ["lines", "count"]

    assert "inputs come first" in cluster.refusal(refused_word_count(make_cycle))


def test_an_unknown_field_is_refused(cluster: Cluster, installation: Installation) -> None:
    def misspell(spec: Object) -> None:
        spec["workers"]["minimum"] = 2

    assert 'unknown field "spec.workers.minimum"' in cluster.refusal(refused_word_count(misspell))


def test_tasks_of_which_there_may_be_none_are_refused(cluster: Cluster, installation: Installation) -> None:
    def forbid_tasks(spec: Object) -> None:
        spec["operators"][2]["tasks"] = {"max": 0}

    assert "tasks.max: Invalid value: 0" in cluster.refusal(refused_word_count(forbid_tasks))


def test_durability_that_does_not_exist_yet_is_refused(cluster: Cluster, installation: Installation) -> None:
    def ask_for_replicas(spec: Object) -> None:
        spec["durability"] = "Replicated"

    assert "use Disk or Process" in cluster.refusal(refused_word_count(ask_for_replicas))


def test_what_the_operator_owns_cannot_be_set(cluster: Cluster, installation: Installation) -> None:
    def take_over(spec: Object) -> None:
        spec["pod"] = {"env": [{"name": "PENSTOCK_STORE_URL", "value": "redis://elsewhere"}]}

    assert "operator's own" in cluster.refusal(refused_word_count(take_over))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"hostNetwork": True}, "host namespaces"),
        ({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "restricted volume types"),
    ],
)
def test_a_pod_that_wants_the_host_is_refused_by_the_namespace(
    cluster: Cluster, installation: Installation, setting: Object, words: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wants-the-host"},
        "spec": {"containers": [{"name": "main", "image": "none"}], **setting},
    }
    refusal = cluster.refusal(pod)
    assert 'violates PodSecurity "restricted' in refusal
    assert words in refusal


def test_what_does_not_fit_waits_and_says_why_and_its_graph_is_fixed_for_life(
    cluster: Cluster, word_count: Callable[..., WordCount]
) -> None:
    huge = word_count("huge", files=1, lines=1, sizes=Sizes(cores_min="900", cores_max="900"))
    huge.wait_phase("Pending", PENDING_S)
    condition = huge.wait_condition("Ready", "False", PENDING_S, reason="InsufficientResources")
    assert "cpu" in condition["message"]
    assert huge.workers() == []

    def refusal(change: Object) -> str:
        with pytest.raises(CommandFailed) as refused:
            huge.edit_operator("count", change)
        return refused.value.errors

    assert "shards are fixed for life" in refusal({"shards": 32})
    assert "keyBy is fixed for life" in refusal({"keyBy": ["word", "word"]})
    assert "outputSchema is fixed for life" in refusal({"outputSchema": "word string"})
