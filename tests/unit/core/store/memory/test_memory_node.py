"""The twin's log: a node that lost the end of it stands as it stood then."""

from __future__ import annotations

import pytest

from penstock.store.memory.node import MemoryNode
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Answer, Append, Bounds, Create, Measure, OpenStore


def store_of(node: MemoryNode, topology: str = "t1") -> MemoryStore:
    return MemoryStore(node, topology, Bounds())


def test_a_rolled_back_node_stands_where_its_log_ends() -> None:
    node = MemoryNode(keep_log=True)
    store, other = store_of(node), store_of(node, "t2")
    store.call(OpenStore("s1"))
    store.call(Create("mid/0"))
    other.call(Create("mid/0"))
    before = store.call(Measure(("mid/0",)))
    length = len(node.log or ())
    store.call(Append("far/0", "mid/0", 1, b"x", 1, 0))
    store.call(OpenStore("s1"))
    other.call(Create("mid/1"))
    node.roll_back(length)
    assert store.call(Measure(("mid/0",))) == before
    assert other.call(Measure(("mid/0", "mid/1")))[1] is None
    assert store.call(Append("far/0", "mid/0", 1, b"x", 1, 0)) is Answer.OK
    assert len(node.log or ()) == length + 1


def test_calls_that_only_look_are_not_logged() -> None:
    node = MemoryNode(keep_log=True)
    store_of(node).call(Measure(("mid/0",)))
    assert node.log == []


def test_a_node_without_a_log_cannot_be_rolled_back() -> None:
    with pytest.raises(ValueError, match="no log"):
        MemoryNode().roll_back(0)
