"""Where everything of a simulated topology is: two nodes, two workers each, shards on both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

NODES = ("a", "b")
WORKERS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}


@dataclass(frozen=True)
class Layout:
    """`homes` is shard -> the store that has it first; `sources` are the operators that read."""

    homes: Mapping[str, str]
    sources: frozenset[str]

    @cached_property
    def operators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(shard.split("/", 1)[0] for shard in self.homes))


IN_A_ROW = Layout(
    {
        "src/0": "a", "mid/0": "a", "mid/1": "a", "mid/2": "a", "end/1": "a",
        "src/1": "b", "mid/3": "b", "mid/4": "b", "end/0": "b",
    },
    frozenset({"src"}),
)  # fmt: skip
WITH_INITIAL = Layout(
    {**IN_A_ROW.homes, "mid-initial/0": "b", "mid-initial/1": "a"}, IN_A_ROW.sources | {"mid-initial"}
)
"""The same, and a source that reads what `mid` begins with."""
JOINED = Layout(
    {
        "src/0": "a", "side/0": "b", "mid/0": "a", "mid/1": "a", "mid/2": "a",
        "src/1": "b", "mid/3": "b", "mid/4": "b",
    },
    frozenset({"src", "side"}),
)  # fmt: skip
"""Two sources, and one stage behind both."""
