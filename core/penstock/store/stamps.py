"""Source timestamps of many rows, as one array: a sequence of ints to all who do not care.

Neighbours: `even_rows` packs and unpacks them, tasks count ages by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


class Stamps(Sequence[int]):
    """Microseconds, in the order of the rows."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[np.int64]) -> None:
        self.array = array

    @classmethod
    def uniform(cls, stamp_us: int, rows: int) -> Stamps:
        """The same for each of so many rows."""
        return cls(np.full(rows, stamp_us, np.int64))

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.tolist())

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Stamps: ...
    def __getitem__(self, place: int | slice) -> int | Stamps:
        if isinstance(place, slice):
            return Stamps(self.array[place])
        return int(self.array[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __repr__(self) -> str:
        return f"Stamps({self.array.tolist()})"

    def taken(self, mask: NDArray[np.bool_]) -> Stamps:
        """Those where `mask` is true."""
        return Stamps(self.array[mask])


def as_array(stamps_us: Sequence[int]) -> NDArray[np.int64]:
    """Any timestamps as an array."""
    return stamps_us.array if isinstance(stamps_us, Stamps) else np.asarray(stamps_us, np.int64)


def oldest(stamps_us: Sequence[int]) -> int:
    """The least of some, which are not none."""
    return int(stamps_us.array.min()) if isinstance(stamps_us, Stamps) else min(stamps_us)


def joined(parts: Iterable[Sequence[int]]) -> Sequence[int]:
    """All of some parts, one behind the other."""
    found: list[Any] = list(parts)
    if found and all(isinstance(part, Stamps) for part in found):
        return found[0] if len(found) == 1 else Stamps(np.concatenate([part.array for part in found]))
    return [stamp_us for part in found for stamp_us in part]
