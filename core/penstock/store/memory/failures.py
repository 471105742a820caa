"""The twin's part about what user code raised."""

from __future__ import annotations

from penstock.store.memory.topology import Handlers, MemoryTopology
from penstock.store.port import Answer, ClearFailure, Failures, ReportFailure


class MemoryFailures(MemoryTopology):
    """A part of `memory.store`."""

    def handlers(self) -> Handlers:
        return Handlers(
            writes={ReportFailure: self._report_failure, ClearFailure: self._clear_failure},
            reads={Failures: self._failures},
        )

    def _report_failure(self, call: ReportFailure) -> Answer:
        record = self._check_owner(call.shard, call.generation, call.epoch)
        if isinstance(record, Answer):
            return record
        if call.operator in self._data.failures:
            return Answer.DONE
        self._data.failures[call.operator] = call.message
        return Answer.OK

    def _clear_failure(self, call: ClearFailure) -> Answer:
        if self._data.retracted:
            return Answer.UNKNOWN
        self._data.failures.pop(call.operator, None)
        return Answer.OK

    def _failures(self, _: Failures) -> dict[str, str]:
        return dict(self._data.failures)
