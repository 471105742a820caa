"""What a node store is called: by its node, and by which of the node's store servers it is.

The first one has the node's name alone, as before a node could have several. Names of nodes are DNS
subdomains, in which no two dots follow each other.
"""

from __future__ import annotations

_BETWEEN = ".."


def store_id(node: str, server: int = 0) -> str:
    """The id of a node's store, of the server with this number."""
    return f"{node}{_BETWEEN}{server}" if server else node


def node_of(store: str) -> str:
    """The node of a store, by its id."""
    return store.partition(_BETWEEN)[0]


def server_of(store: str) -> int:
    """Which of its node's servers a store is, by its id."""
    number = store.partition(_BETWEEN)[2]
    return int(number) if number.isdecimal() else 0


def in_words(store: str) -> str:
    """Where a store is, as people read it: its node, and which server of it where that is not the first."""
    server = server_of(store)
    return f"node {node_of(store)}, server {server}" if server else f"node {node_of(store)}"
