"""Processors with timers and times to live. Each is written once, for both forms: it is given the numbers and
words of its rows, and tells lines.

They travel by value too. What is told of `listTimers` is sorted: Spark lists by the bytes of the expiries.
"""

# ruff: noqa: N802, N803 - pyspark's own names
from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

Pairs = list[tuple[int, str]]


class Timed(StatefulProcessor):
    """What these have in common. `tell` is called for rows, `tell_fired` for a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        raise NotImplementedError

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        return [("fired", now, expiry, self.timers())]

    def timers(self) -> list[int]:
        return sorted(self.handle.listTimers())


class InRows(Timed):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        pairs = [(row.n, row.word) for row in rows]
        yield from self.told(key, self.tell(timerValues.getCurrentProcessingTimeInMs(), pairs))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        yield from self.told(key, self.tell_fired(timerValues.getCurrentProcessingTimeInMs(), expiry))

    def told(self, key: Any, lines: Iterable[Any]) -> Iterator[Row]:
        for number, line in enumerate(lines):
            yield Row(key=repr(key), number=number, text=str(line))


class InPandas(Timed):
    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        pairs = [(int(n), word) for frame in rows for n, word in zip(frame["n"], frame["word"], strict=True)]
        yield from self.told(key, self.tell(timerValues.getCurrentProcessingTimeInMs(), pairs))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        yield from self.told(key, self.tell_fired(timerValues.getCurrentProcessingTimeInMs(), expiry))

    def told(self, key: Any, lines: Iterable[Any]) -> Iterator[pd.DataFrame]:
        texts = [str(line) for line in lines]
        if texts:
            yield pd.DataFrame({"key": [repr(key)] * len(texts), "number": range(len(texts)), "text": texts})


# --- timers -----------------------------------------------------------------------------------------


class DueNow(Timed):
    """Timers around the time of the batch: what is due fires with it, the time itself included."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for at in (now - 1000, now - 1, now, now + 1, now + 99, now + 100, now + 101):
            self.handle.registerTimer(at)
        yield now, self.timers()


class LongPast(Timed):
    """At the beginning of time, and before it."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for at in (1, 0, -1, -(1 << 40)):
            self.handle.registerTimer(at)
        yield self.timers()


class NeverDue(Timed):
    """As late as a long goes."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for at in ((1 << 63) - 1 - (1 << 40), now * 1000):
            self.handle.registerTimer(at)
        yield self.timers()


class Periodic(Timed):
    """One timer that sets the next one."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        if not self.timers():
            self.handle.registerTimer(now + 50)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        self.handle.registerTimer(expiry + 60)
        yield expiry, self.timers()


class PastInHandler(Timed):
    """A handler that sets one for a time that has passed: it fires with the next batch."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        if not self.timers():
            self.handle.registerTimer(now)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        self.handle.registerTimer(expiry - 1)
        yield now, expiry, self.timers()


class SetTwice(Timed):
    """A timer that is there is one timer, whoever sets it again."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for _ in range(3):
            self.handle.registerTimer(now + 150 - now % 100)
        yield len(list(self.handle.listTimers()))


class DeletesItself(Timed):
    """A timer that is deleted in its own handler, with others that never were."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        self.handle.registerTimer(now + 100)
        self.handle.deleteTimer(77)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        before = self.timers()
        self.handle.deleteTimer(expiry)
        self.handle.deleteTimer(expiry)
        self.handle.deleteTimer(expiry + 1_000_000)
        yield expiry, before, self.timers()


class SetForItsOwnTime(Timed):
    """A handler that sets its own timer anew: it goes with the one that fires."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        self.handle.registerTimer(now + 1)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        self.handle.deleteTimer(expiry)
        self.handle.registerTimer(expiry)
        yield expiry, self.timers()


class DeletesLaterOnes(Timed):
    """A handler that deletes those that are not due yet."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for after in (100, 150, 5000):
            self.handle.registerTimer(now + after)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        for at in self.timers():
            if at > now:
                self.handle.deleteTimer(at)
        yield expiry, self.timers()


class Replaced(Timed):
    """Each row deletes all timers, while they are listed, and sets another one; and one that was deleted."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for n, _ in pairs:
            for at in self.handle.listTimers():
                self.handle.deleteTimer(at)
            for _ in range(2):
                self.handle.registerTimer(now + 120 + n % 5)
                self.handle.deleteTimer(now + 120 + n % 5)
            self.handle.registerTimer(now + 120 + n % 5)
            yield self.timers()


class VeryMany(Timed):
    """More timers of a key than its record lists; some of them are deleted."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for after in range(150):
            self.handle.registerTimer(now + 3 * after)
        for after in range(0, 150, 3):
            self.handle.deleteTimer(now + 3 * after)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        if expiry % 5 == 0:
            self.handle.deleteTimer(expiry + 500)
            yield expiry, len(self.timers())


class NoHandler(Timed):
    """Timers that fire into what pyspark's class has: nothing comes out, and they are gone."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        self.handle.registerTimer(now + 10)
        yield self.timers()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        return []


class Bursts(Timed):
    """A timer that puts out very many rows."""

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        self.handle.registerTimer(now + 100)
        return []

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        return [expiry + number for number in range(3000)] if expiry % 200 == 0 else []


class StateOfTimers(Timed):
    """Handlers that read, change and clear all kinds of state."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "n bigint, word string")
        self.items = handle.getListState("items", "n bigint")
        self.words = handle.getMapState("words", "word string", "n bigint")

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for n, word in pairs:
            self.value.update((n, word))
            self.items.appendValue((n,))
            self.words.updateValue((word,), (n,))
        self.handle.registerTimer(now + 100)
        self.handle.registerTimer(now + 101)
        yield self.all_state()

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        yield expiry, self.all_state()
        if expiry % 2:
            self.value.clear()
            self.words.clear()
        else:
            self.items.put([(expiry,), *self.items.get()])
            self.words.updateValue(("fired",), (expiry,))
        yield self.all_state()

    def all_state(self) -> Any:
        return self.value.get(), list(self.items.get()), sorted(self.words.iterator())


class Alarm(Timed):
    """What a timer is for: tells a key that fell silent, and its rows since then."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.last = handle.getValueState("last", "at bigint, rows int")

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        at, rows = self.last.get() or (0, 0)
        if at:
            self.handle.deleteTimer(at + 150)
        self.last.update((now, rows + len(pairs)))
        self.handle.registerTimer(now + 150)
        return []

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        yield "silent", expiry - 150, self.last.get()
        self.last.clear()


# --- times to live ----------------------------------------------------------------------------------


class ValueExpires(Timed):
    """At its limit: a value of 100 ms is seen 99 ms later, and not 100."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "n bigint, word string", 100)
        self.kept = handle.getValueState("kept", "n bigint")

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield now, self.value.exists(), self.value.get(), self.kept.get()
        if not self.value.exists():
            self.value.update(pairs[0])
            self.kept.update((now,))
        yield self.value.get()


class ValueRenewed(Timed):
    """Each update begins its time anew; one that is cleared may come back."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "n bigint", 150)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield self.value.get()
        for n, _ in pairs:
            if n % 3 == 0:
                self.value.clear()
                yield self.value.exists()
            else:
                self.value.update((n,))
        yield self.value.get()


class ElementsExpire(Timed):
    """Each element by itself."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.items = handle.getListState("items", "n bigint, word string", 150)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield now, self.items.exists(), list(self.items.get())
        self.items.appendValue(pairs[0])
        self.items.appendList(pairs)
        yield list(self.items.get())


class ElementsPut(Timed):
    """What is put back lives on from then; a list that is cleared is empty at once."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.items = handle.getListState("items", "n bigint", 110)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        found = list(self.items.get())
        yield now, self.items.exists(), found
        if len(found) > 4:
            self.items.clear()
            yield self.items.exists(), list(self.items.get())
        elif found:
            self.items.put([*found, (-1,)])
        self.items.appendList([(n,) for n, _ in pairs])
        yield list(self.items.get())


class EntriesExpire(Timed):
    """Each entry by itself, by its last update."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.words = handle.getMapState("words", "word string", "n bigint", 150)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield now, self.words.exists(), sorted(self.words.iterator())
        yield sorted(self.words.keys()), sorted(self.words.values())
        yield self.words.containsKey(("first",)), self.words.getValue(("first",))
        for n, word in pairs:
            self.words.updateValue((word,), (n,))
        if not self.words.containsKey(("first",)):
            self.words.updateValue(("first",), (now,))
        yield sorted(self.words.iterator())


class EntriesRemoved(Timed):
    """Entries that are removed, a map that is cleared, and what comes back."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.words = handle.getMapState("words", "n bigint", "word string, at bigint", 250)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        for n, word in pairs:
            self.words.updateValue((n % 4,), (word, now))
            self.words.removeKey(((n + 1) % 4,))
            yield self.words.getValue((n % 4,)), self.words.containsKey(((n + 1) % 4,))
        if len(list(self.words.keys())) > 2:
            self.words.clear()
            yield self.words.exists()
            self.words.updateValue((9,), (None, now))
        yield sorted(map(str, self.words.iterator()))


class LivesOfAllKinds(Timed):
    """Variables with several times to live, short and very long, beside those without, of other types."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.price = handle.getValueState("price", "price decimal(12,2), at timestamp", 99)
        self.day = handle.getListState("day", "day date, there timestamp_ntz, raw binary", 100)
        self.pair = handle.getMapState("pair", "x double, word string", "pair struct<a:bigint,b:string>", 101)
        self.long = handle.getValueState("long", "items array<bigint>", 1 << 50)
        self.kept = handle.getMapState("kept", "n bigint", "n bigint")

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield self.all_state()
        for n, word in pairs[:1]:
            at = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
            self.price.update((decimal.Decimal(n) / 4, at))
            self.day.appendValue((at.date(), at.replace(tzinfo=None), bytes([n % 256])))
            self.pair.updateValue((n / 8, word), (Row(a=n, b=None),))
            self.long.update(([n, None],))
            self.kept.updateValue((n,), (now,))
        yield self.all_state()

    def all_state(self) -> Any:
        maps = [sorted(map(str, one.iterator())) for one in (self.pair, self.kept)]
        return self.price.get(), list(self.day.get()), self.long.get(), maps


class TimerSeesExpired(Timed):
    """A timer that is due as a value expires does not see it any more."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.value = handle.getValueState("value", "n bigint", 100)
        self.items = handle.getListState("items", "n bigint", 199)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        if not self.value.exists():
            self.value.update((now,))
        self.items.appendValue((now,))
        self.handle.registerTimer(now + 99)
        self.handle.registerTimer(now + 100)
        return []

    def tell_fired(self, now: int, expiry: int) -> Iterable[Any]:
        yield now, expiry, self.value.get(), list(self.items.get())
        self.value.update((expiry,))


class DeletesWhatLived(Timed):
    """State that never was is deleted, beside state with a time to live."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        handle.deleteIfExists("never")
        self.value = handle.getValueState("value", "n bigint", 120)

    def tell(self, now: int, pairs: Pairs) -> Iterable[Any]:
        yield self.value.get()
        self.value.update((now,))


# --- keys and chains --------------------------------------------------------------------------------


class TimersOfKeys(StatefulProcessor):
    """Keys of all types: each has timers of its own, and its handler is given the key as rows were."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.calls = handle.getValueState("calls", "rows bigint", 250)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        calls = (self.calls.get() or (0,))[0] + sum(1 for _ in rows)
        self.calls.update((calls,))
        self.handle.registerTimer(now)
        self.handle.registerTimer(now + 100)
        yield self.told(key, calls)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        calls = (self.calls.get() or (0,))[0]
        yield self.told((*key, expiredTimerInfo.getExpiryTimeInMs(), sorted(self.handle.listTimers())), calls)

    def told(self, key: Any, rows: int) -> Row:
        text = repr(key).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")
        return Row(text=text, rows=rows)


class PandasTimersOfKeys(TimersOfKeys):
    def handleInputRows(  # type: ignore[override]
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        given = (row for frame in rows for row in frame.itertuples())
        for row in super().handleInputRows(key, given, timerValues):
            yield pd.DataFrame([row.asDict()])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


class Totalled(StatefulProcessor):
    """The first of a chain: sums what came, and puts it out 100 ms later."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        total = (self.total.get() or (0,))[0] + sum(row.n for row in rows)
        self.total.update((total,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 100)
        if total % 2:
            yield Row(word=f"odd {total}", n=total)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield Row(word=key[0], n=self.total.get()[0])
        yield Row(word="all", n=self.total.get()[0])


class Gathered(StatefulProcessor):
    """The second one: tells at once what it is given, and with a timer of its own how much that was."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.seen = handle.getListState("seen", "n bigint", 250)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        numbers = sorted(row.n for row in rows)
        self.seen.appendList([(n,) for n in numbers])
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 50)
        yield Row(text=f"{key[0]} {numbers}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        seen = sorted(n for (n,) in self.seen.get())
        yield Row(text=f"{key[0]} fired {expiredTimerInfo.getExpiryTimeInMs()} {seen}")


BOTH_FORMS = (
    DueNow, LongPast, NeverDue, Periodic, PastInHandler, SetTwice, DeletesItself, SetForItsOwnTime,
    DeletesLaterOnes, Replaced, VeryMany, NoHandler, Bursts, StateOfTimers, Alarm,
)  # fmt: skip
"""Those that have timers alone,"""
BOTH_FORMS_EXPIRING = (
    ValueExpires, ValueRenewed, ElementsExpire, ElementsPut, EntriesExpire, EntriesRemoved, LivesOfAllKinds,
    TimerSeesExpired, DeletesWhatLived,
)  # fmt: skip
"""and those with times to live, which PySpark's tester has not."""


def in_form(processor: type[Timed], form: type[Timed]) -> type[Timed]:
    """`processor` in one of the two forms."""
    name = f"{form.__name__}{processor.__name__}"
    return type(name, (processor, form), {"__module__": __name__, "__doc__": processor.__doc__})
