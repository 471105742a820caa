"""The word count over real text, on pods of two nodes."""

from __future__ import annotations

from collections.abc import Callable

from e2e.harness.installation import node_of
from e2e.harness.topologies import Sizes, WordCount


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
