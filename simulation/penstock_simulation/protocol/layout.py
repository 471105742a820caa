"""Where everything of a simulated topology is: two nodes, two workers each, shards on both."""

from __future__ import annotations

NODES = ("a", "b")
WORKERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
HOMES = {
    "src/0": "a", "mid/0": "a", "mid/1": "a", "mid/2": "a", "end/1": "a",
    "src/1": "b", "mid/3": "b", "mid/4": "b", "end/0": "b",
}  # fmt: skip
OPERATORS = ("src", "mid", "end")
