"""The word count over real text, on pods of two nodes."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from e2e.harness.cluster import ROOT, Cluster
from e2e.harness.installation import Installation, node_of
from e2e.harness.topologies import START_S, Running, Sizes, WordCount
from e2e.harness.watching import wait_until


def test_the_first_topology_of_the_readme_counts_and_is_shown_as_there(
    cluster: Cluster, installation: Installation, run: Callable[[Running], None]
) -> None:
    folder = ROOT / "examples/word-count"
    manifest = yaml.safe_load((folder / "on-kubernetes.yaml").read_text(encoding="utf-8"))
    counting = Running(cluster, manifest, folder)
    run(counting)
    counting.wait_workers(2)
    counting.wait_phase("Running", START_S)

    def logged() -> str:
        return cluster.kubectl("logs", f"--selector={counting.selector}")

    wait_until("totals are in the logs", lambda: '"total":' in logged(), START_S, every_s=1)
    lines = [line.split() for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()]
    promised = next(line for line in lines if line[:2] == [counting.name, "Running"])

    def shown() -> list[list[str]]:
        return [line.split() for line in cluster.kubectl("get", "topologies", counting.name).splitlines()]

    assert shown()[0] in lines
    wait_until("it is shown as in the README", lambda: shown()[1][:4] == promised[:4], START_S, every_s=1)


def test_workers_on_both_nodes_count_the_words_of_real_text_exactly(
    word_count: Callable[..., WordCount],
) -> None:
    counting = word_count("both-nodes", files=8, lines=1500, lines_per_second=700)
    workers = counting.wait_workers(2)
    nodes = {node_of(pod) for pod in workers}
    assert nodes == set(counting.cluster.worker_nodes)
    counting.wait_rows()
    homes = {part["home"] for schedule in counting.schedules() for part in schedule["spec"]["shards"]}
    assert homes == nodes
    counting.assert_exact()
    assert counting.expected.total() > 50_000
    counting.wait_workers(0)


def test_each_operator_may_have_workers_of_its_own(word_count: Callable[..., WordCount]) -> None:
    counting = word_count("apart", lines=400, sizes=Sizes(workers=1, isolation="Operator"))
    names = [pod["metadata"]["name"] for pod in counting.wait_workers(2)]
    assert [name.rsplit("-", 2)[0] for name in sorted(names)] == ["apart-count", "apart-lines"]
    counting.assert_exact()
