"""What becomes of rows on which the code of an operator raises: the policy, and its decisions.

Pure. Neighbours: `plan` has one for each operator, the worker's stages go by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FAIL = "Fail"
DEAD_LETTER = "DeadLetter"
RETRY = "Retry"
KEEP_DEFAULT = 1000
ATTEMPTS_DEFAULT = 5
BACKOFF_MS_DEFAULT = 100
BACKOFF_MS_MAX = 60_000
_DEAD = "/dead"
_HELD = "/held"

Row = TypeVar("Row")
Made = TypeVar("Made")


def dead_letters_of(operator: str) -> str:
    """The name under which an operator's dead letters are counted by rows, which no operator can have."""
    return operator + _DEAD


def operator_of_dead_letters(name: str) -> str | None:
    """Inverse of `dead_letters_of`; None for what is counted under another name."""
    return name.removesuffix(_DEAD) if name.endswith(_DEAD) else None


def held_rows_of(operator: str) -> str:
    """The same of rows that wait to be tried again; what no longer waits is taken off."""
    return operator + _HELD


def rows_held(counts: Mapping[str, int]) -> int:
    """Of all that is counted in a shard, how many rows wait to be tried again."""
    return sum(rows for name, rows in counts.items() if name.endswith(_HELD))


@dataclass(frozen=True, slots=True)
class OnError:
    """`then` is FAIL or DEAD_LETTER: what becomes of rows that `attempts` further calls fail on as well.

    `keep` is how many dead letters a shard holds for the operator; with `to_sink` they go to the topology's
    sink of dead letters instead.
    """

    then: str = FAIL
    attempts: int = 0
    backoff_ms: int = 0
    keep: int = KEEP_DEFAULT
    to_sink: bool = False

    @property
    def fails(self) -> bool:
        """Whether the operator fails at once, as it does without a word in the manifest."""
        return self.then == FAIL and not self.attempts

    @property
    def keeps_letters(self) -> bool:
        return self.then == DEAD_LETTER

    @property
    def calls(self) -> int:
        """How often the code was called for rows that it has failed on for good."""
        return self.attempts + 1

    @property
    def spares_at_once(self) -> bool:
        """Whether rows become dead letters at the first failure, without tries before."""
        return self.keeps_letters and not self.attempts

    def wait_ms(self, failed: int) -> int | None:
        """How long to wait after the call that failed as the `failed`th in a row (from 1); None for no more.

        Each time twice as long as before, a minute at the most.
        """
        if failed > self.attempts:
            return None
        return min(BACKOFF_MS_MAX, self.backoff_ms << min(failed - 1, 32))


FAILS = OnError()


def taken_apart(
    rows: Sequence[Row],
    call: Callable[[Sequence[Row]], Sequence[Made]],
    refused: Callable[[Row, Exception], None],
    fault: type[Exception],
    first: Exception,
    taken: Callable[[Exception], int | None] = lambda _: None,
) -> list[Made]:
    """What `call` makes of `rows`, for which it has raised `first`, a `fault`.

    `taken` says of a fault how many of its rows were taken when it was raised, where somebody knows. It is
    the last of them most likely: those before it, it alone and those behind it are handed over next. Without
    that, or where all were taken, halves are. So it goes on, in order, until only single rows raise, which
    are `refused`. One bad row of n costs 3 more calls, or about 2 log n.
    """
    made: list[Made] = []
    left: list[tuple[Sequence[Row], Exception | None]] = [(rows, first)]
    """Those that come first stand last."""
    while left:
        part, error = left.pop()
        if error is None:
            try:
                made.extend(call(part))
                continue
            except fault as raised:
                error = raised
        if len(part) == 1:
            refused(part[0], error)
        else:
            left.extend((piece, None) for piece in reversed(_pieces(part, taken(error))))
    return made


def _pieces(rows: Sequence[Row], taken: int | None) -> list[Sequence[Row]]:
    """At least two parts of two rows or more, none of them empty."""
    if taken is None or not 0 < taken < len(rows):
        half = len(rows) // 2
        return [rows[:half], rows[half:]]
    return [piece for piece in (rows[: taken - 1], rows[taken - 1 : taken], rows[taken:]) if len(piece)]
