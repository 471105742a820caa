#!/usr/bin/env python3
"""Stands in for runc where the machine itself lacks CAP_SYS_RESOURCE.

A container cannot be given what its host has not got: `docker run --privileged` asks for every capability,
and runc then stops with "unable to apply caps: operation not permitted". This takes out of what runc is
asked for all that needs the capability: the capability itself, resource limits above the host's own, a
negative oom_score_adj. It then becomes runc. engine.sh makes it docker's default runtime, only when it is
needed.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

MISSING = "CAP_SYS_RESOURCE"


def soften_process(process: dict[str, Any]) -> None:
    """Take out what needs the capability, from the `process` part of an OCI specification."""
    for names in process.get("capabilities", {}).values():
        while MISSING in names:
            names.remove(MISSING)
    process.pop("rlimits", None)
    if process.get("oomScoreAdj", 0) < 0:
        del process["oomScoreAdj"]


def soften_file(path: Path, *, is_bundle: bool) -> None:
    specification = json.loads(path.read_text())
    soften_process(specification.get("process", {}) if is_bundle else specification)
    path.write_text(json.dumps(specification))


def option(arguments: list[str], *names: str) -> str | None:
    """The value of an option, written `--name value` or `--name=value`."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            return value if equals else arguments[place + 1]
    return None


def main(arguments: list[str]) -> None:
    if "create" in arguments or "run" in arguments:
        bundle = option(arguments, "--bundle", "-b") or "."
        soften_file(Path(bundle) / "config.json", is_bundle=True)
    elif "exec" in arguments and (process := option(arguments, "--process", "-p")):
        soften_file(Path(process), is_bundle=False)
    runc = os.environ.get("PENSTOCK_RUNC", "runc")
    os.execvp(runc, [runc, *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
