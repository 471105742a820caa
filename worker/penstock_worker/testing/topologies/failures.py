"""What a test is told when something fails: the user's own exception where there is one.

Its traceback begins and ends in the user's code, and a note says for which operator, key and row. What
Penstock refuses by itself (a row that does not fit its columns, one that is too large) is an `OperatorFailed`
with the words that a run would say.
"""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock_worker.stages.work import WorkFailed
from penstock_worker.user_code.running import UserCodeError, users_frames


class OperatorFailed(Exception):
    """An operator fails as it would in a run; the text is what the run would say."""

    __module__ = "penstock.testing"


class Misuse(ValueError):
    """A test asks for something that is not there; the text says what is."""

    __module__ = "penstock.testing"


def failure_of(failed: PenstockError) -> Exception:
    """What to raise in the test."""
    said = failed.__cause__ if isinstance(failed, WorkFailed) else failed
    cause = said.__cause__ if isinstance(said, UserCodeError) else None
    frames = None if cause is None else users_frames(cause.__traceback__)
    if cause is None or frames is None:
        return OperatorFailed(str(failed))
    cause = cause.with_traceback(frames)
    if isinstance(cause, Exception):
        cause.add_note(str(said).partition("\n")[0])
        return cause
    # What would end the test's own process, such as SystemExit.
    failure = OperatorFailed(str(failed))
    failure.__cause__ = cause
    return failure
