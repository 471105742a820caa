"""The last steps of a simulated run, for people: who called what, what came back, what the world did.

Lines are kept as values and only formatted when a run failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from penstock.store.port import (
    Acknowledge,
    Advance,
    Advanced,
    Append,
    Claim,
    Claimed,
    Commit,
    Create,
    Fetch,
    Fetched,
    Load,
    Publish,
    PutMetrics,
    ReadOutbox,
    Request,
    SetTasks,
    TakeFacts,
    TaskMap,
    Tasks,
    Watermark,
    WatermarkFact,
    WorkerAssignment,
)
from penstock.store.port.moves import (
    Activate,
    Depart,
    Discard,
    Drop,
    Export,
    Freeze,
    Install,
    NextRound,
    Precopy,
    Thaw,
)

LINES_MAX = 120


class Trace:
    """`turn` counts the steps of the run; every line carries it."""

    def __init__(self) -> None:
        self.turn = 0
        self._lines: deque[tuple[int, str, str, Sequence[Request[Any]], object]] = deque(maxlen=LINES_MAX)

    def event(self, who: str, what: str) -> None:
        """The world did something to `who`."""
        self._lines.append((self.turn, who, what, (), None))

    def calls(self, who: str, node: str, calls: Sequence[Request[Any]], answers: object) -> None:
        """A round trip, with its answers or what became of it."""
        self._lines.append((self.turn, who, node, calls, answers))

    def text(self) -> str:
        """One line for an event, one for each call of a round trip."""
        lines: list[str] = []
        for turn, who, where, calls, answers in self._lines:
            head = f"{turn:5} {who:14}"
            if not calls:
                lines.append(f"{head} {where}")
            elif isinstance(answers, list):
                lines += [
                    f"{head} {where} {_call(call)} -> {_answer(answer)}"
                    for call, answer in zip(calls, answers, strict=True)
                ]
            else:
                lines += [f"{head} {where} {_call(call)} -> {answers}" for call in calls]
        return "\n".join(lines)


def _call(call: Request[Any]) -> str:
    match call:
        case Commit():
            outputs = ", ".join(f"{o.target}:{o.payload.hex(' ', 3)}" for o in call.outputs)
            where = f"to {call.offset}" if call.position is None else f"position {call.position.decode()}"
            at = f" watermark {_watermark(call.watermark)}" if call.watermark is not None else ""
            return f"commit {call.shard} #{call.number} epoch {call.epoch} {where}{at} [{outputs}]"
        case Claim():
            return f"claim {call.shard} for {call.owner.ready} version {call.version}"
        case Fetch():
            return f"fetch {call.ready}"
        case Load():
            return f"load {call.shard} epoch {call.epoch} {[f.hex() for f in call.fields]}"
        case Append():
            return f"append {call.producer}>{call.target} #{call.number} {call.payload.hex(' ', 3)}"
        case Acknowledge():
            return f"acknowledge {call.producer}>{call.target} #{call.number} {call.position.decode()}"
        case ReadOutbox():
            return f"read outbox {call.producer}>{call.target}"
        case Create():
            return f"create {call.shard}"
        case Publish():
            places = ", ".join(f"{shard} on {executor}" for shard, executor, _ in call.shards)
            return f"publish {call.operator} version {call.version}: {places}"
        case SetTasks():
            return f"set tasks {dict(call.mapping)}"
        case Tasks():
            return f"tasks of {call.executor}"
        case PutMetrics():
            return f"put metrics {[name for name, _ in call.rows]}"
        case _:
            return _rarer_call(call)


def _facts(facts: Sequence[WatermarkFact]) -> str:
    return ", ".join(f"{fact.shard} #{fact.version} {_watermark(fact.watermark)}" for fact in facts)


def _watermark(watermark: Watermark) -> str:
    return f"{watermark.ms}{' idle' if watermark.is_idle else ''}"


def _rarer_call(call: Request[Any]) -> str:
    match call:
        case Precopy():
            return f"precopy {call.shard} for {call.target} version {call.version}"
        case Freeze():
            return f"freeze {call.shard} epoch {call.move.epoch} version {call.version}"
        case Export():
            return f"export {call.shard} epoch {call.move.epoch} from {len(call.resume)} bytes"
        case Install():
            return f"install {call.shard} epoch {call.move.epoch} chunk {call.number}"
        case NextRound() | Depart() | Activate() | Drop() | Thaw() | Discard():
            return f"{type(call).__name__.lower()} {call.shard} epoch {call.move.epoch}"
        case Advance():
            return f"advance {[f'{one.shard} epoch {one.epoch}' for one in call.shards]}"
        case TakeFacts():
            return f"take facts {_facts(call.facts)}"
        case _:
            return str(call)


def _answer(answer: object) -> str:
    match answer:
        case Fetched():
            shards = [
                f"{s.shard} epoch {s.epoch} {[(e.number, e.payload.hex(' ', 3)) for e in s.entries]}"
                for s in answer.shards
            ]
            return f"{', '.join(shards) or 'nothing'}{' and control' if answer.control else ''}"
        case Claimed():
            return f"epoch {answer.epoch} commit {answer.commit} offset {answer.offset} {answer.external}"
        case WorkerAssignment():
            return ", ".join(f"{e.executor}: {e.shards}" for e in answer.executors if e.shards) or "nothing"
        case TaskMap():
            return f"{answer.mapping} of {answer.incarnation}, version {answer.version}"
        case Advanced():
            return f"{_watermark(answer.watermark)} {[str(one) for one in answer.answers]}"
        case [WatermarkFact(), *_]:
            return _facts(cast("list[WatermarkFact]", answer))
        case {} if answer and all(isinstance(row, bytes) for row in answer.values()):
            return f"{len(answer)} rows"
        case _:
            return str(answer)
