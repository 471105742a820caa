"""The user code that a manifest names, as another process saw it that imported it.

That is `penstock_worker.user_code.inspect_code`, since code needs Spark's classes and may do anything.
Neighbour: `checked_manifest` asks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from penstock.api.inspected_code import InspectedCode
from penstock.errors import PermanentError

_INSPECT_S_MAX = 120


class InspectionFailedError(PermanentError):
    """User code could not be looked at: the other process ended without an answer."""


def inspected(path: Path, overrides: Sequence[str]) -> InspectedCode:
    """What is wrong with the code, and what there is to say of it. Raises InspectionFailedError."""
    arguments = [argument for override in overrides for argument in ("--set", override)]
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "penstock_worker.user_code.inspect_code", str(path), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSPECT_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise InspectionFailedError(
            f"The user code of {path} could not be imported within {_INSPECT_S_MAX} s: "
            "a module should not work or wait when it is imported."
        ) from error
    try:
        return msgspec.json.decode(ran.stdout, type=InspectedCode)
    except msgspec.DecodeError as error:
        last = (ran.stderr.strip() or ran.stdout.strip() or "it wrote nothing").splitlines()[-1]
        raise InspectionFailedError(
            f"The user code of {path} could not be inspected (exit code {ran.returncode}): {last}"
        ) from error
