"""The port `asking.line` without a process: what would answer there answers here, on the store's twin."""

from __future__ import annotations

from penstock.store import kept_questions as kept
from penstock.store.shard_homes import ShardHomes
from penstock_operator.asking.asked_shards import AskedShards
from penstock_operator.asking.line import LineBroken
from penstock_worker.state.answering import Answering

_PIECE_BYTES = 1000


class AnsweringHere:
    """Answers come in small pieces. `version` is what it says that it speaks."""

    def __init__(self, homes: ShardHomes, version: int = kept.VERSION) -> None:
        self._answering = Answering(homes, sleep=lambda _: None)
        self._asked = b""
        self._answers = kept.framed(kept.Hello(version))
        self.opening: kept.Opening | None = None

    def send(self, data: bytes) -> None:
        self._asked += data
        frames = kept.Frames(self._next_asked)
        while (message := frames.next()) is not None:
            if isinstance(message, kept.Opening):
                self.opening = message
                continue
            for answer in self._answering.answers(message):
                self._answers += kept.framed(answer)

    def receive(self, within_s: float) -> bytes:
        if not self._answers:
            raise LineBroken(f"nothing within {within_s:g} s")
        piece, self._answers = self._answers[:_PIECE_BYTES], self._answers[_PIECE_BYTES:]
        return piece

    def close(self) -> None:
        """Nothing is to be ended."""

    def _next_asked(self) -> bytes:
        asked, self._asked = self._asked, b""
        return asked


def asked_here(homes: ShardHomes) -> AskedShards:
    """Shards, as a command asks about them."""
    return AskedShards(AnsweringHere(homes), kept.Opening("uid", {}, {}))
