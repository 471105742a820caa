"""A task whose operators have an `onError`, on the twin: what becomes letters, and orders about them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.letters import CLERK, Letter, LetterId, collection_of, encode_order, letters_in
from penstock.store.memory.store import MemoryStore
from penstock.store.port import Answer, Append, Commit, Request, StateSnapshot, StoreUnreachable
from scenes.task_scene import MANIFEST, Between, Scene

CODE = """
from pyspark.sql.streaming import StatefulProcessor


def split(line):
    if "unsplittable" in line.value:
        raise ValueError("this line is no words")
    return [MADE for word in line.value.split()]


class Count(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "n long")
        self.seen = handle.getListState("seen", "n long")
        self.marks = handle.getMapState("marks", "n long", "n long")

    def handleInputRows(self, key, rows, timers):
        before = self.total.get()
        total = before[0] if before else 0
        for row in rows:
            total += 1
            self.total.update((total,))
            self.seen.appendValue((total,))
            self.marks.updateValue((total,), (total,))
            FAULT
            yield (key[0], total)
        assert self.total.get()[0] == total
        assert [n for (n,) in self.seen.get()] == list(range(1, total + 1))
        assert sorted(k[0] for k, _ in self.marks.iterator()) == list(range(1, total + 1))

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        expiry = expiredTimerInfo.getExpiryTimeInMs()
        TIMERS
        yield from ()

    def close(self):
        pass
"""
POISON = 'if key[0] == "poison": raise ValueError("this word is poison")'
TEXT = "{files: {glob: '*.txt', format: text}}"


class Losing(Between):
    """Loses the answer to each of the first `lost` round trips with commits; they are carried out."""

    def __init__(self, store: MemoryStore, lost: int) -> None:
        super().__init__(store)
        self._lost = lost

    def pipeline(self, calls: Sequence[Request[Any]]) -> list[Any]:
        answers = self._store.pipeline(calls)
        if self._lost and any(isinstance(call, Commit) for call in calls):
            self._lost -= 1
            raise StoreUnreachable("the reply was lost")
        return answers


class LetterScene(Scene):
    """`fault` is run for each row of the processor, `timers` where one fires; `on_error` and `step_on_error`
    stand in the manifest. `numbered`: words come with the number behind them apart. `select`: fields of an
    operator `chosen` between step and processor. `letters_to`: the topology's sink of dead letters."""

    def __init__(
        self,
        folder: Path,
        fault: str = POISON,
        on_error: str = "DeadLetter",
        step_on_error: str = "Fail",
        source: str = TEXT,
        *,
        timers: str = "",
        numbered: bool = False,
        select: str = "",
        letters_to: str = "",
    ) -> None:
        super().__init__(folder)
        self._numbered = numbered
        self._ordered: Counter[str] = Counter()
        time_mode = "ProcessingTime" if timers else "None"
        changes = {
            '{files: {glob: "*.txt", format: text}}': source,
            'map: "loop_code:split"': f'map: "loop_code:split"\n    onError: {step_on_error}',
            'processor: "loop_code:Count"': f'processor: "loop_code:Count"\n    onError: {on_error}\n'
            f"    timeMode: {time_mode}",
        }
        if numbered:
            changes['outputSchema: "word string"'] = 'outputSchema: "word string, n long"'
        if select:
            changes["inputs: [words]"] = "inputs: [chosen]"
        if letters_to:
            changes["  operators:\n"] = f"  deadLetters: {letters_to}\n  operators:\n"
        manifest = MANIFEST
        for before, after in changes.items():
            manifest = manifest.replace(before, after)
        if select:
            manifest = manifest.replace(
                "  - name: count\n", f"  - name: chosen\n    inputs: [words]\n    {select}\n  - name: count\n"
            )
        (folder / "topology.yaml").write_text(manifest)
        self.plan = compile_topology(load_topology(folder / "topology.yaml"))
        self.set_code(fault, timers=timers)

    def set_code(self, fault: str = "pass", code: str = CODE, *, timers: str = "pass") -> None:
        """Other code, for tasks that begin from now on."""
        made = "(word[:-1], int(word[-1]))" if self._numbered else "word"
        code = code.replace("FAULT", fault).replace("TIMERS", timers or "pass").replace("MADE", made)
        (self.folder / "loop_code.py").write_text(code)
        sys.modules.pop("loop_code", None)

    def sent(self) -> list[dict[str, Any]]:
        """What is in the files of a sink of dead letters below `dead`."""
        return [
            json.loads(line)
            for path in sorted((self.folder / "dead").glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]

    def letters(self, operator: str, *shards: str) -> dict[tuple[str, LetterId], Letter]:
        """What the store holds of an operator's letters, by default in the shards of `count`."""
        found: dict[tuple[str, LetterId], Letter] = {}
        for shard in shards or self.count_shards:
            state = self.store.call(StateSnapshot(shard))
            fields = {
                field: value for (place, field), value in state.items() if place == collection_of(operator)
            }
            found |= {(shard, of): letter for of, letter in letters_in(fields).items()}
        return found

    def order(self, doing: str, operator: str, shard: str, of: LetterId) -> None:
        self._ordered[shard] += 1
        payload = encode_order(doing, operator, of)
        call = Append(CLERK, shard, self._ordered[shard], payload, 0, self.clock.now_us())
        assert self.store.call(call) is Answer.OK
