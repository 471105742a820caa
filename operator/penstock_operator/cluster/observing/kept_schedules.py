"""Reads what the stores know of Schedules: what their agents keep beside the state, and the maps' versions.

Asked only about Schedules that are gone, and once about each that is there when this process begins to lead;
so a connection is made for each question. Nothing is written: the operator's Redis user cannot. Neighbours:
the agents' `schedule_memory` writes what is read here, `decisions.recovery` goes on from it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.api.schedule_object import from_object, owner_of
from penstock.errors import PenstockError
from penstock.manifest.faults import InvalidManifest
from penstock.schedule.rebuilding import Kept
from penstock.schedule.record import OperatorSchedule
from penstock.store.keys import SCHEDULES, Keys
from penstock.store.port import UnreadableState
from penstock.store.redis.connection import Command, ServerError
from penstock_operator.cluster.observing.asked_store import OpenWire, Wire, asked_within
from penstock_operator.cluster.observing.observed import KeptThere

_LOG = logging.getLogger(__name__)

_VERSION_LENGTH_MAX = 15


@dataclass(frozen=True, slots=True)
class KeptSchedules:
    """Belongs to one event loop."""

    open_wire: OpenWire
    threads: Executor
    wait_s: float = 1.5

    async def read(
        self, topology_uid: str, names: Mapping[str, str], addresses: Mapping[str, str]
    ) -> dict[str, KeptThere | None]:
        """Store id -> what it knows of this state's Schedules, of every store in `addresses`. `names` is
        operator -> object."""
        ids = list(addresses)
        answers = await asyncio.gather(*(self._read(topology_uid, names, addresses[id_]) for id_ in ids))
        return dict(zip(ids, answers, strict=True))

    async def _read(self, uid: str, names: Mapping[str, str], address: str) -> KeptThere | None:
        ask = partial(_ask, self.open_wire(address), uid, names)
        try:
            return await asked_within(self.wait_s, self.threads, ask)
        except (PenstockError, TimeoutError) as error:
            _LOG.debug("store %s does not say what it keeps: %s", address, error or "it takes too long")
            return None


def _ask(wire: Wire, uid: str, names: Mapping[str, str]) -> KeptThere:
    operators, keys = list(names), Keys(uid)
    asked: Command = (b"HMGET", SCHEDULES, *(names[operator].encode() for operator in operators))
    versions_at = [(keys.schedule(operator), b"version") for operator in operators]
    try:
        texts, *lengths = _answers(wire, [asked, *((b"HSTRLEN", *at) for at in versions_at)])
        if max(lengths, default=0) > _VERSION_LENGTH_MAX:
            raise UnreadableState("a map's version is no number")
        versions = _answers(wire, [(b"HGET", *at) for at in versions_at])
    finally:
        wire.close()
    return {
        operator: Kept(_schedule(text, uid), _version(version))
        for operator, text, version in zip(operators, texts, versions, strict=True)
    }


def _answers(wire: Wire, commands: list[Command]) -> list[Any]:
    answers = wire.exchange(commands)
    for answer in answers:
        if isinstance(answer, ServerError):
            raise PenstockError(str(answer))
    return answers


def _version(told: bytes | None) -> int:
    """The maps are the topology's own, and its workers may have written there."""
    if told is not None and not told.isdigit():
        raise UnreadableState(f"a map's version is {told!r}")
    return int(told or 0)


def _schedule(text: bytes | None, uid: str) -> OperatorSchedule | None:
    """What is kept under a Schedule's name, if it is of this state."""
    if text is None:
        return None
    item = json.loads(text)
    try:
        return from_object(item) if owner_of(item).topology_uid == uid else None
    except InvalidManifest as fault:
        _LOG.warning("a Schedule that a store keeps cannot be read: %s", fault)
        return None
