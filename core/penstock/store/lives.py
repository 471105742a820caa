"""Lives of a shard: how often its state was lost for good, and it was begun anew.

A shard that lives once more begins with nothing, while others still know of its earlier life: a target which
numbers it took of it last, a producer which number comes next, a store that is not as dead as it was thought
which epoch its owner has. So all numbers of a life stand above those of the one before: its epochs, and those
of the entries that it puts out. What an earlier life still sends is then old, and its first entry is known as
such. The Lua functions have the same constant (`shared/records.lua`), and write no more than 14 digits of a
number, which is why lives are few (`penstock.schedule.record.LIVES_MAX`).
"""

from __future__ import annotations

LIFE = 100_000_000_000
"""Epochs, and entries of one pair, in one life."""


def life_of(epoch: int) -> int:
    """0 for the first."""
    return epoch // LIFE


def before_first(epoch: int) -> int:
    """The number before the first one of the life that has this epoch."""
    return epoch - epoch % LIFE


def comes_next(taken: int, number: int, epoch: int, *, is_oldest: bool) -> bool:
    """Whether a target of this epoch, which took `taken` last, takes this number of a pair now."""
    if number <= taken:
        return False
    return number == taken + 1 or number % LIFE == 1 or (is_oldest and epoch >= LIFE)
