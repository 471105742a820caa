"""What stores are called, and whose they are by that."""

from __future__ import annotations

import pytest

from penstock.schedule.store_ids import in_words, node_of, server_of, store_id


@pytest.mark.parametrize("node", ["a", "ip-10-0-0-1.ec2.internal", "node-1"])
@pytest.mark.parametrize("server", [0, 1, 15])
def test_an_id_tells_its_node_and_its_server(node: str, server: int) -> None:
    store = store_id(node, server)
    assert (node_of(store), server_of(store)) == (node, server)


def test_the_first_server_has_its_nodes_name_alone() -> None:
    assert store_id("node-1") == "node-1"


def test_people_read_of_further_servers_alone_which_one_it_is() -> None:
    assert in_words("node-1") == "node node-1"
    assert in_words("node-1..2") == "node node-1, server 2"


def test_an_id_of_somebody_else_is_a_first_servers() -> None:
    assert (node_of("a..b"), server_of("a..b")) == ("a", 0)
