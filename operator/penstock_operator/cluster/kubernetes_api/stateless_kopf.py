"""What kopf keeps of an object between two changes: nothing, since no handler of ours asks for it.

By itself it copies every object several times at each event, to find out what has changed since the last one
and which handlers are not done: half of what an event costs. Neighbour: `watches` sets these.
"""

from __future__ import annotations

from typing import Any

import kopf


class NoEssence(kopf.DiffBaseStorage):
    """No state is compared with another."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass


class NoProgress(kopf.ProgressStorage):
    """No handler is taken up again."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        pass

    def purge(self, **_: Any) -> None:
        pass

    def touch(self, **_: Any) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
