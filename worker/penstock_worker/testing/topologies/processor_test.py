"""`ProcessorTest`: one processor in a user's own test, in a topology of a source, the processor and a sink.

Neighbour: `topology_test` does the work; here the manifest is written and names are left out.
"""

from __future__ import annotations

import datetime
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import yaml
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.api.load import parse_manifest
from penstock.manifest.document import API_VERSION
from penstock.manifest.faults import Fault, InvalidManifest
from penstock_worker.testing.topologies.failures import Misuse
from penstock_worker.testing.topologies.topology_test import START, TopologyTest
from penstock_worker.values.wire_values import shown

SOURCE, PROCESSOR, SINK = "input", "processor", "output"
_NUMBERS = itertools.count(1)
_NAMED = {
    f"spec.operators[1] ({PROCESSOR}).outputSchema": "output",
    f"spec.operators[1] ({PROCESSOR}).keyBy": "key",
    f"spec.operators[1] ({PROCESSOR}).timeMode": "time_mode",
    f"spec.operators[1] ({PROCESSOR}).form": "form",
    f"spec.operators[1] ({PROCESSOR}).args": "args",
    f"spec.operators[1] ({PROCESSOR}).calls": "calls",
    f"spec.operators[1] ({PROCESSOR}).initialState.files.schema": "initial_schema",
    f"spec.operators[1] ({PROCESSOR}).processor": "processor",
    f"spec.operators[0] ({SOURCE}).source.files.schema": "input",
    f"spec.operators[0] ({SOURCE}).eventTime.column": "event_time",
    f"spec.operators[0] ({SOURCE}).eventTime.allowedDelay": "allowed_delay",
}
"""Places in the manifest, and the arguments that they came of."""


class ProcessorTest:
    """A `StatefulProcessor` that a test feeds and reads: a class, an object of one, or what makes one.

    `input` and `output` are the columns of its rows in Spark's DDL, `key` those that make the key, `args`,
    `calls`, `form` and `time_mode` as the operator has them in a manifest. With `event_time`, a column of the
    input, it goes by event time; the watermark stays `allowed_delay` behind the latest. `initial` are rows of
    `initial_schema` for `handleInitialState`. Time begins at `start`.

    What the processor raises is raised by the call that led to it, as it was raised. Raises InvalidManifest
    for what `penstock validate` would refuse.
    """

    def __init__(
        self,
        processor: type[StatefulProcessor] | StatefulProcessor | Callable[..., StatefulProcessor],
        *,
        input: str,  # noqa: A002 - what a user calls it
        key: str | Sequence[str],
        output: str,
        args: Mapping[str, Any] | None = None,
        calls: Mapping[str, Any] | None = None,
        form: str | None = None,
        time_mode: str | None = None,
        event_time: str | None = None,
        allowed_delay: str | None = None,
        initial: Iterable[Any] | None = None,
        initial_schema: str | None = None,
        start: datetime.datetime = START,
    ) -> None:
        if not callable(processor) and not isinstance(processor, StatefulProcessor):
            raise Misuse(
                f"a StatefulProcessor is tested, its class or what makes one; got {shown(processor)}"
            )
        if initial is not None and initial_schema is None:
            raise Misuse(
                "initial has rows; give their columns too, such as initial_schema='key string, n long'"
            )
        self._module = ModuleType(f"penstock_tested_{next(_NUMBERS)}")
        name = getattr(processor, "__name__", type(processor).__name__)
        name = name if name.isidentifier() else PROCESSOR
        setattr(self._module, name, processor)
        sys.modules[self._module.__name__] = self._module
        operator = {
            "name": PROCESSOR,
            "inputs": [SOURCE],
            "keyBy": [key] if isinstance(key, str) else list(key),
            "processor": f"{self._module.__name__}:{name}",
            "outputSchema": output,
            "args": dict(args) if args else None,
            "calls": dict(calls) if calls else None,
            "form": form,
            "timeMode": time_mode or ("EventTime" if event_time is not None else None),
            "initialState": initial_schema
            and {"files": {"glob": "*", "format": "jsonl", "schema": initial_schema}},
        }
        source = {
            "name": SOURCE,
            "source": {"files": {"glob": "*", "format": "jsonl", "schema": input}},
            "eventTime": event_time and _given({"column": event_time, "allowedDelay": allowed_delay}),
        }
        sink = {"name": SINK, "inputs": [PROCESSOR], "sink": {"console": {}}}
        operators = [_given(source), _given(operator), sink]
        spec = {"code": {"module": self._module.__name__}, "operators": operators}
        document = {
            "apiVersion": API_VERSION,
            "kind": "Topology",
            "metadata": {"name": "tested"},
            "spec": spec,
        }
        try:
            self._test = TopologyTest(
                parse_manifest(yaml.safe_dump(json.loads(json.dumps(document)))).topology,
                Path.cwd(),
                start=start,
                initial=None if initial is None else {PROCESSOR: initial},
            )
        except InvalidManifest as invalid:
            self._forget()
            raise InvalidManifest(map(_in_own_words, invalid.faults)) from None
        except BaseException:
            self._forget()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, frames: TracebackType | None
    ) -> None:
        if raised is None:
            self.close()
        else:
            self._forget()

    def feed(self, rows: Iterable[Any]) -> None:
        """Rows come, all at once: those of one key are handed over by one call. Dicts by column, Rows,
        tuples, or bare values where there is one column."""
        __tracebackhide__ = True
        self._test.feed(SOURCE, rows)

    @property
    def now(self) -> datetime.datetime:
        """The time that the processor sees, in UTC."""
        return self._test.now

    def advance(
        self,
        duration: datetime.timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass: timers fire at their time, what has lived its time to live goes."""
        __tracebackhide__ = True
        self._test.advance(
            duration, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )

    def advance_to(self, at: datetime.datetime) -> None:
        """Let time pass until then."""
        __tracebackhide__ = True
        self._test.advance_to(at)

    def advance_watermark(self, to: datetime.datetime) -> None:
        """Bring event time on: no row before `to` is waited for any more, and timers before it fire."""
        __tracebackhide__ = True
        self._test.advance_watermark(to)

    @property
    def watermark(self) -> datetime.datetime | None:
        """How far event time is; None before there is any."""
        return self._test.watermark(PROCESSOR)

    def rows(self) -> list[dict[str, Any]]:
        """All rows that it has put out, as dicts."""
        return self._test.rows(PROCESSOR)

    def take(self) -> list[dict[str, Any]]:
        """Those that came since the last call."""
        return self._test.take(PROCESSOR)

    def late_rows(self) -> list[dict[str, Any]]:
        """Rows that came behind the watermark, which it has not seen."""
        return self._test.late_rows(PROCESSOR)

    def state(self, key: Any) -> dict[str, Any]:
        """What it keeps of a key, by state variable, as `TopologyTest.state`."""
        return self._test.state(PROCESSOR, key)

    def timers(self, key: Any) -> list[datetime.datetime]:
        """When the timers of a key expire, in order."""
        return self._test.timers(PROCESSOR, key)

    def restart(self) -> None:
        """Go on with another instance, as after a kill or a move: what is not in state is gone."""
        __tracebackhide__ = True
        self._test.restart()

    def close(self) -> None:
        """Calls the processor's `close`. A `with` block does it at its end."""
        __tracebackhide__ = True
        try:
            self._test.close()
        finally:
            self._forget()

    def _forget(self) -> None:
        sys.modules.pop(self._module.__name__, None)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _in_own_words(fault: Fault) -> Fault:
    """Under the argument's name, where one led to the place."""
    for place, argument in _NAMED.items():
        if fault.path.startswith(place):
            return Fault(argument + fault.path.removeprefix(place), fault.message)
    return fault
