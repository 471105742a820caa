"""What user code raised, as commands."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.store.port import ClearFailure, Failures, ReportFailure
from penstock.store.redis.connection import Command
from penstock.store.redis.forms import CallForm, PartsForm, RedisRole, answer

_FAILURES_MAX = 1000
"""No more are read: some tens of operators, under the templates that failed lately."""


class RedisFailures(RedisRole):
    """A part of `redis.calls`."""

    writes = ("report_failure", "clear_failure")
    reads = ()

    def forms(self) -> Mapping[type, CallForm | PartsForm]:
        return {
            ReportFailure: CallForm(self._report_failure, answer),
            ClearFailure: CallForm(self._clear_failure, answer),
            Failures: CallForm(self._failures, _texts),
        }

    def _report_failure(self, call: ReportFailure) -> Command:
        head = self._heads["report_failure"]
        return (*head, call.shard, call.generation, call.epoch, call.operator, call.message)

    def _clear_failure(self, call: ClearFailure) -> Command:
        return (*self._heads["clear_failure"], call.operator)

    def _failures(self, _: Failures) -> Command:
        return (b"HRANDFIELD", self._keys.failures, _FAILURES_MAX, b"WITHVALUES")


def _texts(_: Failures, reply: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode(errors="replace"): message.decode(errors="replace") for name, message in reply}
