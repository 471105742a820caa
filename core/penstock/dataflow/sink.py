"""What a plan holds of a sink, of whatever kind: its name, and what outside it writes into.

Each kind has its own frozen dataclass below this in `penstock.connectors`, beside the fields that a user
writes; the worker's `sinks` has its writer. Whoever delivers, resumes or shows knows this alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar


class Sink(ABC):
    """A sink's kind with its settings. `base_dir` is where relative paths begin."""

    __slots__ = ()

    name: str
    """The operator's."""
    kind: ClassVar[str]
    """Its name in a manifest."""
    is_shown: ClassVar[bool] = False
    """`penstock run` takes its rows out of the outboxes itself, and shows them; elsewhere tasks deliver it as
    any other."""

    is_stage: ClassVar[bool] = False
    """It is a stage of its own, with one shard that rows of all others go to, and not fused behind them."""

    @abstractmethod
    def identity_text(self) -> str:
        """In words, the settings that positions depend on; kept with the state."""

    def warnings(self, base_dir: Path) -> list[str]:
        """What would keep it from being written now, though its settings are right. Without effect."""
        return []

    def folder(self, base_dir: Path) -> Path | None:
        """The folder that one topology's state has to itself, because the sink writes there."""
        return None

    def files(self, operator: str, parts: Iterable[str], base_dir: Path) -> list[Path]:
        """The files that it writes behind these shards of `operator`."""
        return []

    def earlier_files(self, operator: str, base_dir: Path) -> list[Path]:
        """Files that it would write behind any shard of `operator`, and that are there already."""
        return []
