"""Answers of a long bench's jobs, kept on disk, so that it can be stopped and gone on with.

Answers count only for the very code that gave them: a journal belongs to one state of `_CODE` in git, and
where files differ from that none is kept. Neighbour: `bench.sla_trials.in_processes` asks before it runs a
job.
"""

from __future__ import annotations

import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".penstock" / "bench"
_CODE = ("core/penstock/control", "core/penstock/simulation", "bench/workloads", "bench/sla_trials.py")

Job = tuple[Callable[..., Any], tuple[Any, ...]]


class Journal:
    """Answers by job; `path` None keeps them nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._answers: dict[str, Any] = {}
        if path is not None and path.exists():
            with path.open("rb") as file:
                while True:
                    try:
                        key, answer = pickle.load(file)
                    except (EOFError, pickle.UnpicklingError):
                        break  # the last one may be torn
                    self._answers[key] = answer

    @classmethod
    def of(cls, bench: str) -> Journal:
        """That of the code as it is."""
        state = _state()
        return cls(None if state is None else FOLDER / f"{bench}-{state}.pickle")

    def __contains__(self, job: Job) -> bool:
        return _key(job) in self._answers

    def __getitem__(self, job: Job) -> Any:
        return self._answers[_key(job)]

    def __setitem__(self, job: Job, answer: Any) -> None:
        self._answers[_key(job)] = answer
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                pickle.dump((_key(job), answer), file)


def _key(job: Job) -> str:
    function, arguments = job
    return f"{function.__module__}.{function.__qualname__}{arguments!r}"


def _state() -> str | None:
    """Of the code in git, in a few letters; None where files differ from it."""

    def git(*arguments: str) -> str | None:
        told = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return told.stdout.strip() if told.returncode == 0 else None

    changed = git("status", "--porcelain", "--", *_CODE)
    trees = [git("rev-parse", "--short=8", f"HEAD:{path}") for path in _CODE]
    if changed != "" or None in trees:
        return None
    return "-".join(str(tree) for tree in trees)
