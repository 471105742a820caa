"""User code in a task: loading it by name, running a processor on one key's rows, wording what it raises.

Whatever user code raises is its failure, `KeyboardInterrupt` and `asyncio.CancelledError` too: nobody else
raises them in a task. `ProcessorRunner` is what Spark's own worker is to a `StatefulProcessor`: it calls
`init` once, then `handleInputRows` for each key of a batch, and `close` at the end. Neighbours: `keyed_stage`
drives it, `steps` runs the stateless functions, `state.handle` is what the processor sees of its state.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, cast

import pyspark
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues

from penstock.dataflow.plan import EVENT_TIME, NO_TIME, Calls, InitialState
from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.state.cache import Key, ShardState, Variable
from penstock_worker.state.clients import TimerClient
from penstock_worker.state.handle import TaskHandle
from penstock_worker.user_code.async_step import is_async
from penstock_worker.user_code.form_signs import FormUnclear, form_of
from penstock_worker.user_code.forms import WIRE, form_for
from penstock_worker.user_code.key_calls import NO_CALLS, CallVoid, KeyCall, KeyCalls, is_async_processor
from penstock_worker.user_code.processor_code import maker_of, making
from penstock_worker.values.held import ONE_ROW, Held, TooMuch
from penstock_worker.values.rows import RowMismatch, timer_key_reader
from penstock_worker.values.wire_values import shown

_TEXT_CHARACTERS_MAX = 8000
_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *(str(Path(file).parent) for file in (pyspark.__file__, importlib.__file__)),
    "<frozen importlib",
)


class UserCodeMissing(PermanentError):
    """What a manifest names cannot be imported or is not there; the message says which and why."""


class UserCodeError(PermanentError):
    """User code raised, or made rows that do not fit. The text is for people: operator, input, traceback.

    It is made when somebody reads it: rows that fail together are called again in parts, and most of these
    failures nobody reads. A traceback costs more than the calls.
    """

    def __init__(self, operator: str, doing: str, text: str | Callable[[], str]) -> None:
        super().__init__(operator, doing)
        self.operator = operator
        self.rows_taken: Callable[[], int | None] = lambda: None
        """Says how many of the rows that it was called for the code had taken by then, where that is known.
        It uses up those that are left, so it is asked once, by who hands rows over again."""
        self._doing = doing
        self._text = text

    def __str__(self) -> str:
        if not isinstance(self._text, str):
            self._text = self._text()
        return _writable(f"operator {self.operator}: {self._doing}\n{self._text}")

    @classmethod
    def told(cls, operator: str, message: str) -> UserCodeError:
        """One that another process had; `message` is its text there."""
        doing, _, text = message.removeprefix(f"operator {operator}: ").partition("\n")
        return cls(operator, doing, text)


def raised(operator: str, function: Any, called: str, what: str, error: BaseException) -> UserCodeError:
    """`error`, which a call of the user's `function` led to, in words: `called` names it, `what` its input
    ("on Row(...)"). Rows that do not fit need no traceback, only the place where they were made."""

    def text() -> str:
        told = str(error) if isinstance(error, RowMismatch) else users_traceback(error)
        if "  File " not in told and (place := _place(function)):
            return f"{told}\n  {place}"
        return told

    doing = f"{called}, {what}:" if isinstance(error, RowMismatch) else f"{called} raised {what}"
    return UserCodeError(operator, doing, text)


def _place(function: Any) -> str:
    """Where a function of the user's stands; "" when it is none that Python knows the place of."""
    called = function.func if isinstance(function, partial) else function
    code = getattr(inspect.unwrap(called), "__code__", None)
    return f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}' if code else ""


def _writable(text: str) -> str:
    """What user code says may be no Unicode; the report of it has to be."""
    return text.encode("utf-8", "backslashreplace").decode()


def load_module(name: str, base_dir: Path) -> ModuleType:
    """The module `name`, looked for in `base_dir` first. Raises UserCodeMissing."""
    if str(base_dir) not in sys.path:
        sys.path.insert(0, str(base_dir))
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise UserCodeMissing(f"module {name!r} cannot be imported:\n{users_traceback(error)}") from error


def load_attribute(target: str, base_dir: Path) -> Any:
    """What "module:attribute" names; modules are looked for in `base_dir` first. Raises UserCodeMissing."""
    module_name, _, attribute = target.partition(":")
    found: Any = load_module(module_name, base_dir)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise UserCodeMissing(f"module {module_name!r} has no {attribute!r}")
        found = getattr(found, name)
    return found


def users_traceback(error: BaseException) -> str:
    """The traceback of `error` from the user's first frame to their last, cut in the middle if very long."""
    _end_chain(error)
    lines = traceback.TracebackException(type(error), error, users_frames(error.__traceback__)).format()
    text = "".join(lines).rstrip()
    if len(text) > _TEXT_CHARACTERS_MAX:
        half = _TEXT_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"
    return _writable(text)


def _end_chain(error: BaseException) -> None:
    """Cut what an exception was raised behind where that is an earlier failure of ours: rows are handed over
    again, in parts, while the failure of all of them is handled."""
    at: BaseException | None = error
    seen: set[int] = set()
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        if isinstance(at.__context__, UserCodeError):
            at.__context__ = None
        at = at.__cause__ or at.__context__


def users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The frames without those of Penstock and Spark at their beginning and end."""
    listed = []
    while frames is not None:
        listed.append(frames)
        frames = frames.tb_next
    while listed and _foreign(listed[0]):
        del listed[0]
    while listed and _foreign(listed[-1]):
        del listed[-1]
    kept: TracebackType | None = None
    for frame in reversed(listed):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def _foreign(frame: TracebackType) -> bool:
    return frame.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS)


_Call = tuple[Key, int | None]
"""A key, and which of its timers it is about; None for its rows."""
_GONE = object()
"""What comes of a timer that is not there any more."""


class Asked(NamedTuple):
    """Rows of a key, or a timer of it, that an async processor is to be called for, with the times that its
    TimerValues tell."""

    state: ShardState
    key: Key
    rows: Sequence[Any]
    now_ms: int
    watermark_ms: int
    expiry_ms: int | None = None
    """When the timer was due; None for rows."""


class ProcessorRunner:
    """One instance of a StatefulProcessor and what it needs to run on rows. `init` has been called.

    `processor` is a class or what makes an instance, or an object, of which this gets a copy.
    `input_schema`, `key_columns` (positions in it), `output_schema`, `form` ("" where the class says it),
    `time_mode` and `calls` are the operator's. Raises UserCodeError when construction or `init` raises, or
    the form is unclear.
    """

    careful = False
    """Whether keys are worked on one by one, also where they need not be."""

    def __init__(
        self,
        processor: Callable[[], StatefulProcessor] | StatefulProcessor,
        input_schema: Schema,
        key_columns: Sequence[int],
        output_schema: Schema,
        operator: str,
        form: str = "",
        *,
        time_mode: str = NO_TIME,
        initial: InitialState | None = None,
        calls: Calls | None = None,
    ) -> None:
        self._operator = operator
        called = making(processor)
        self._processor = self._call(maker_of(processor), called)
        if not isinstance(self._processor, StatefulProcessor):
            wanted = "a processor is a pyspark.sql.streaming.StatefulProcessor"
            raise UserCodeError(operator, f"{called} returned", f"{shown(self._processor)}; {wanted}")
        try:
            form = form_of(type(self._processor), form)
            self._form = form_for(form, input_schema, key_columns, output_schema)
            self._initial_rows = (
                form_for(form, initial.schema, initial.key_columns, output_schema).rows if initial else None
            )
        except FormUnclear as unclear:
            raise UserCodeError(operator, "the form of its processor is unclear:", str(unclear)) from None
        self.key_types = tuple(input_schema.columns[column].type for column in key_columns)
        self._read_timer_key = None if form == WIRE else timer_key_reader(self.key_types)
        self._timer_values = TimerValues(-1, -1)
        self._expired = ExpiredTimerInfo(-1)
        self._by_event_time = time_mode == EVENT_TIME
        self.watermark_ms = 0 if self._by_event_time else -1
        """What its TimerValues tell: that of the rows that come next. As in Spark it is -1 without event
        time, and 0 as long as there is none."""
        self._told = (-1, -1)
        handle = TaskHandle(time_mode)
        self._cursor = handle.cursor
        self._timers = handle.timers
        self._call(partial(self._processor.init, handle), "init")
        handle.seal()
        self.variables: tuple[Variable, ...] = tuple(handle.variables)
        self.deleted = tuple(handle.deleted)
        self._key_calls: KeyCalls | None = None
        self._ahead: dict[ShardState, dict[_Call, list[tuple[Any, ...]] | Exception]] = {}
        """What `call_ahead` came to, until `run` or `expire` is asked for it."""
        if is_async_processor(self._processor):
            self._key_calls = KeyCalls(self._cursor, calls or Calls())
        elif calls is not None:
            raise UserCodeError(operator, "calls are given, and", NO_CALLS.format(called))

    def begin(self, state: ShardState, key: Key, rows: Sequence[Any], now_ms: int) -> None:
        """Hand `rows` (wire rows of `key`, in order) to the processor as its initial state, as Spark does:
        one by one, or as DataFrames. Raises as `run`.
        """
        rows_of = self._initial_rows
        if rows_of is None:
            raise UserCodeError(
                self._operator, "initial rows came to it,", "and it has no initialState to read them by"
            )
        if (now_ms, self.watermark_ms) != self._told:
            self._tell(now_ms)
        self._cursor.at(state, state.begin(key))
        users_key = self._form.key(key)
        try:
            for given in rows_of(rows):
                self._processor.handleInitialState(users_key, given, self._timer_values)
        except BaseException as error:
            what = f"for key {shown(users_key)}"
            raise self._raised(state, "handleInitialState", what, error) from error
        finally:
            self._cursor.leave()
        if state.failure is not None:
            raise state.failure

    def _tell(self, now_ms: int) -> None:
        """What TimerValues tell from now on."""
        self._told = (now_ms, self.watermark_ms)
        self._timer_values = TimerValues(now_ms, self.watermark_ms)

    def given(self, rows_by_key: Sequence[Sequence[Any]]) -> Iterable[Iterable[Any]]:
        """What `run` is to be given of several keys, of wire rows of each in order: made together where that
        costs less. To be asked for as it is handed over."""
        if self._key_calls is not None:
            return [()] * len(rows_by_key)
        return self._form.each(rows_by_key)

    @property
    def takes_columns(self) -> bool:
        """Whether rows that are columns (`values.group_rows`) are handed over sooner than others."""
        return self._form.takes_columns and self._key_calls is None

    # --- async processors

    @property
    def concurrent(self) -> int:
        """For how many keys it is called at once; 0 where it is called for one after the other."""
        return self._key_calls.concurrent if self._key_calls is not None and not self.careful else 0

    def waits_in(self, method: str) -> bool:
        """Whether this method of the processor is async."""
        return is_async(getattr(self._processor, method))

    def call_ahead(self, asked: Sequence[Asked], held: Held, *, spares: bool) -> None:
        """Call an async processor for different keys at once; `run` and `expire` then have what came of it,
        and raise it.

        Where one raises and it does not `spare` the others, that is raised here, and the states are to be
        rolled back. So it is with TooMuch.
        """
        calls = cast("KeyCalls", self._key_calls)
        made = calls.together([self._key_call(one, held) for one in asked], held, spares=spares)
        for one, found in zip(asked, made, strict=True):
            came = self._came(one, found) if isinstance(found, BaseException) else found
            if isinstance(came, UserCodeError) and not spares:
                raise came
            self._ahead.setdefault(one.state, {})[one.key, one.expiry_ms] = came

    def forget_ahead(self, state: ShardState) -> None:
        """The state was rolled back, or is let go of."""
        self._ahead.pop(state, None)

    def _run_async(self, asked: Asked, held: Held) -> list[tuple[Any, ...]]:
        found = self._ahead.get(asked.state, {}).pop((asked.key, asked.expiry_ms), None)
        if found is None:
            try:
                return cast("KeyCalls", self._key_calls).alone(self._key_call(asked, held))
            except BaseException as error:
                raise self._came(asked, error) from error
        if isinstance(found, Exception):
            raise found
        return found

    def _timer_call(self, asked: Asked, expiry_ms: int, held: Held) -> KeyCall:
        timers = cast("TimerClient", self._timers)
        handle = partial(
            self._processor.handleExpiredTimer,
            key=self._timer_key(asked.key),
            timerValues=TimerValues(asked.now_ms, asked.watermark_ms),
            expiredTimerInfo=ExpiredTimerInfo(expiry_ms),
        )

        def begin() -> Any:
            return handle() if timers.fires(expiry_ms) else _GONE

        def read(result: Any) -> list[tuple[Any, ...]]:
            if result is _GONE:
                return []
            rows = self._form.wire_rows(result, held)
            timers.delete(expiry_ms)
            return rows

        return KeyCall(asked.state, asked.key, begin, read)

    def _timer_key(self, key: Key) -> Any:
        return key if self._read_timer_key is None else self._read_timer_key(key)

    def _key_call(self, asked: Asked, held: Held) -> KeyCall:
        if asked.expiry_ms is not None:
            return self._timer_call(asked, asked.expiry_ms, held)
        form, key = self._form, self._form.key(asked.key)
        times = TimerValues(asked.now_ms, asked.watermark_ms)

        def begin() -> Any:
            return self._processor.handleInputRows(key, form.rows(asked.rows), times)

        return KeyCall(asked.state, asked.key, begin, lambda result: form.wire_rows(result, held))

    def _came(self, asked: Asked, error: BaseException) -> Exception:
        if isinstance(error, TooMuch):
            return error
        if isinstance(error, CallVoid) and asked.state.failure is not None:
            return asked.state.failure
        called, what = "handleInputRows", f"for key {shown(self._form.key(asked.key))}"
        if asked.expiry_ms is not None:
            called = "handleExpiredTimer"
            what = f"for key {shown(self._timer_key(asked.key))} at {asked.expiry_ms}"
        told = raised(self._operator, getattr(self._processor, called), called, what, error)
        told.__cause__ = error
        return told

    def run(
        self,
        state: ShardState,
        key: Key,
        rows: Sequence[Any],
        now_ms: int,
        held: Held = ONE_ROW,
        given: Iterable[Any] | None = None,
    ) -> list[tuple[Any, ...]]:
        """Hand `rows` (wire rows of `key`, in order) to the processor; what it yields, as wire rows.

        `given` are these rows where they were made already. `now_ms` is the processing time that its
        TimerValues tell. Raises UserCodeError and TooMuch, after which the batch is to be rolled back, or
        OwnershipLost and StoreUnreachable from loading state.
        """
        if self._key_calls is not None:
            return self._run_async(Asked(state, key, rows, now_ms, self.watermark_ms), held)
        if (now_ms, self.watermark_ms) != self._told:
            self._tell(now_ms)
        self._cursor.at(state, state.begin(key))
        form = self._form
        users_key = form.key(key)
        try:
            if given is None:
                given = form.rows(rows)
            result = self._processor.handleInputRows(users_key, given, self._timer_values)
            wire_rows = form.wire_rows(result, held)
        except TooMuch:
            raise
        except BaseException as error:
            what = f"for key {shown(users_key)}"
            failed = self._raised(state, "handleInputRows", what, error)
            if isinstance(failed, UserCodeError) and given is not None:
                failed.rows_taken = partial(form.taken, rows, given)
            raise failed from error
        finally:
            self._cursor.leave()
        if state.failure is not None:
            raise state.failure
        return wire_rows

    def expire(
        self, state: ShardState, key: Key, expiry_ms: int, now_ms: int, held: Held = ONE_ROW
    ) -> list[tuple[Any, ...]]:
        """Fire the timer of `key` that was set for `expiry_ms`, and take it away, as Spark does, behind the
        handler: one that this sets anew for the same time goes with it. What it yields, as wire rows; nothing
        for one that was deleted meanwhile. Raises as `run`.
        """
        if not self._by_event_time:
            # The wall clock may have been set back since.
            now_ms = max(now_ms, expiry_ms)
        if self._key_calls is not None:
            return self._run_async(Asked(state, key, (), now_ms, self.watermark_ms, expiry_ms), held)
        timers = cast("TimerClient", self._timers)
        self._cursor.at(state, state.begin(key))
        users_key = self._timer_key(key)
        if (now_ms, self.watermark_ms) != self._told:
            self._tell(now_ms)
        if self._expired.getExpiryTimeInMs() != expiry_ms:
            self._expired = ExpiredTimerInfo(expiry_ms)
        try:
            if not timers.fires(expiry_ms):
                return []
            result = self._processor.handleExpiredTimer(
                key=users_key, timerValues=self._timer_values, expiredTimerInfo=self._expired
            )
            wire_rows = self._form.wire_rows(result, held)
            timers.delete(expiry_ms)
        except TooMuch as error:
            raise state.failure or error from None
        except BaseException as error:
            what = f"for key {shown(users_key)} at {expiry_ms}"
            raise self._raised(state, "handleExpiredTimer", what, error) from error
        finally:
            self._cursor.leave()
        if state.failure is not None:
            raise state.failure
        return wire_rows

    def set_timer(self, state: ShardState, key: Key, expiry_ms: int, *, there: bool) -> None:
        """A timer of `key` is there, or is not, whatever became of its handler. Raises as loading state."""
        timers = cast("TimerClient", self._timers)
        self._cursor.at(state, state.begin(key))
        try:
            if there:
                timers.register(expiry_ms)
            else:
                timers.delete(expiry_ms)
        finally:
            self._cursor.leave()

    def _raised(self, state: ShardState, called: str, what: str, error: BaseException) -> Exception:
        """What a call of user code comes to that raised: not its own failure where loading state failed."""
        if state.failure is not None:
            return state.failure
        return raised(self._operator, getattr(self._processor, called), called, what, error)

    def close(self) -> None:
        """Call the processor's `close`. Raises UserCodeError."""
        self._cursor.doing = "close"
        self._call(self._processor.close, "close")

    def _call(self, function: Callable[[], Any], called: str) -> Any:
        try:
            return function()
        except BaseException as error:
            raise UserCodeError(self._operator, f"{called} raised", users_traceback(error)) from error
