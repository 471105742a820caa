"""What a plan holds of a source, of whatever kind: its partitions, its rate, and what its state depends on.

Each kind has its own frozen dataclass below this in `penstock.connectors`, beside the fields that a user
writes; the worker's `sources` has its reader. Whoever places, demands, resumes or paces knows this alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from penstock.errors import PermanentError

ADDED = b"\xc1"
"""The position of a partition that was added after others of its source began, until something of it is
committed. Whoever makes its shard knows no kind: the task that takes it up reads it as `late_position`. No
kind's own position is this byte, which MessagePack never uses."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How many rows all partitions of a source give together: `per_s` a second, or over time as the file
    `trace` says. Neither: as fast as downstream takes them."""

    per_s: float | None = None
    trace: str | None = None


class Source(ABC):
    """A source's kind with its settings. `base_dir` is where relative paths begin.

    Partitions are named by their part, which never changes; a partition is a shard. What is read of one is
    known by its committed position: bytes that only its kind understands, and b"" (or `ADDED`) at the
    beginning.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """Its name in a manifest."""
    trace_may_end: ClassVar[bool] = True
    """Whether a rate trace that ends may end the source; not where what is left would never be read."""
    parts_are: ClassVar[str] = "partitions"
    """What a user calls its partitions."""

    tells_lag: ClassVar[bool] = False
    """Whether its readers tell how far behind what is there they are."""
    grows: ClassVar[bool] = False
    """Whether partitions may be added while it is read, which has no end: then `penstock run` looks for them
    too."""

    refuses_input: ClassVar[bool] = False
    """Whether it may have lines or records that are no rows, which its readers can pass over."""

    @property
    def rate(self) -> Rate:
        return Rate()

    def of_topology(self, topology: str, operator: str) -> Source:
        """With what it is called outside by default, which follows from these names."""
        return self

    @property
    def fixed_parts(self) -> tuple[str, ...] | None:
        """All parts, where they follow from the settings alone. None where they are found out there, and may
        become more: then workers look for them and announce them."""
        return None

    @abstractmethod
    def parts(self, base_dir: Path) -> tuple[str, ...]:
        """All parts that are there now. Raises PermanentError when there is none, or one has no name."""

    @property
    def late_position(self) -> bytes:
        """Where a partition begins that was added after others began (`ADDED`)."""
        return b""

    def resume_news(self, positions: Mapping[str, bytes]) -> str:
        """What people should know before it is read on under these settings; "" for nothing. `positions` is
        part -> what is committed of it. Raises PermanentError where the two do not fit."""
        return ""

    def grew(self, part: str, position: bytes, base_dir: Path) -> bool:
        """Whether a partition that was read to its end at `position` may have more by now."""
        return False

    def warnings(self, base_dir: Path) -> list[str]:
        """What would keep it from being read now, though its settings are right. Without effect."""
        try:
            self.parts(base_dir)
        except PermanentError as error:
            return [str(error)]
        return []

    @abstractmethod
    def identity_text(self) -> str:
        """The settings that partitions and positions depend on and that never change, in words; no columns.

        It is kept with the state, so a setting that comes later is left out where it has its default.
        """
