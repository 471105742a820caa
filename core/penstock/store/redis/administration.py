"""A store's opening, and the topologies in it, as commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.store.keys import STORE, TOPOLOGIES, is_uid
from penstock.store.port import (
    KeepTopologies,
    OpenStore,
    ProtocolMismatch,
    ReadGeneration,
    Retract,
    SomeTopologies,
    Topologies,
    TopologiesAmong,
)
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, function_name


class RedisAdministration(RedisRole):
    """A part of `redis.calls`."""

    writes = ("retract",)
    reads = ()

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            OpenStore: CallForm(self._open_store, _generation),
            ReadGeneration: CallForm(self._read_generation, _number),
            Retract: CallForm(self._retract, _left),
            Topologies: CallForm(self._topologies, _uids),
            TopologiesAmong: CallForm(self._topologies_among, _among),
            SomeTopologies: PartsForm(self._some_topologies, _some),
            KeepTopologies: CallForm(self._keep_topologies, _nothing),
        }

    def _open_store(self, call: OpenStore) -> Command:
        return (b"FCALL", function_name("open_store", self._version), b"1", STORE, call.store_id, call.run_id)

    def _read_generation(self, _: ReadGeneration) -> Command:
        return (b"HGET", STORE, b"generation")

    def _retract(self, _: Retract) -> Command:
        return self._heads["retract"]

    def _topologies(self, _: Topologies) -> Command:
        return (b"SMEMBERS", TOPOLOGIES)

    def _topologies_among(self, call: TopologiesAmong) -> Command:
        # the server wants one at the least
        return (b"SMISMEMBER", TOPOLOGIES, *(call.uids or ("",)))

    def _some_topologies(self, call: SomeTopologies) -> list[Command]:
        return [(b"SCARD", TOPOLOGIES), (b"SRANDMEMBER", TOPOLOGIES, call.count)]

    def _keep_topologies(self, call: KeepTopologies) -> Command:
        return (b"FCALL", function_name("keep_topologies", self._version), b"1", TOPOLOGIES, *call.uids)


def _among(call: TopologiesAmong, reply: list[int]) -> list[str]:
    return sorted(uid for uid, is_there in zip(call.uids, reply, strict=False) if is_there)


def _some(call: SomeTopologies, replies: list[Any]) -> tuple[int, list[str]]:
    return replies[0], _uids(call, replies[1])


def _nothing(_: Any, __: Any) -> None:
    return None


def _uids(_: Any, reply: Iterable[bytes]) -> list[str]:
    """Every topology's workers may add to this set: what is no uid is nobody's."""
    told = sorted(one.decode(errors="replace") for one in reply)
    return [uid for uid in told if is_uid(uid)]


def _generation(call: OpenStore, reply: list[Any]) -> int:
    store_id = reply[0].decode()
    if store_id != call.store_id:
        raise ProtocolMismatch(f"this store is {store_id!r}, not {call.store_id!r}")
    generation: int = reply[1]
    return generation


def _number(_: ReadGeneration, reply: bytes | None) -> int:
    return int(reply or 0)


def _left(_: Retract, reply: int) -> int:
    return reply
