"""Running a program and reading what it says; a failure carries the program's own words."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WORDS_MAX = 4000


class CommandFailed(Exception):
    """A program ended with another code than 0."""

    def __init__(self, arguments: Sequence[str], code: int, output: str, errors: str) -> None:
        shown = " ".join(arguments)[:400]
        super().__init__(f"{shown}: code {code}\n{errors[-WORDS_MAX:]}{output[-WORDS_MAX:]}")
        self.errors = errors
        self.output = output


@dataclass(frozen=True)
class Environment:
    """The variables in which programs run. They are no part of what a failed test shows."""

    variables: Mapping[str, str] = field(repr=False)

    def run(self, *arguments: str, feed: str | None = None, seconds: float = 60) -> str:
        """Run a program to its end; answers what it printed. Raises CommandFailed or TimeoutExpired."""
        done = subprocess.run(
            arguments,
            input=feed,
            stdin=subprocess.DEVNULL if feed is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=dict(self.variables),
            check=False,
        )
        if done.returncode != 0:
            raise CommandFailed(arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a program whose output is read while it runs."""
        return subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(self.variables),
        )
