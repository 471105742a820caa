"""`python -m faults`: the fault runner's long form, `make faults SEEDS=1-20`.

Each seed draws a topology and its faults, runs it with `penstock run`, and compares what came out with a
plain count. Exit code 1 when a row was lost, doubled, brought out of order or torn, something was left over,
the run stood still, or a pause was above its bound. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from faults import plan, report, topology
from faults.scene import Outcome, Scene

ROUNDS = 6
LINES = 15_000
"""Of each partition: two and a half minutes at its pace."""
SEED_S_MAX = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", default="1-5", help="such as 7, 1-20 or 3,5,8-10")
    parser.add_argument("--minutes", type=float, help="begin no further seed after so long")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of faults in each seed")
    parser.add_argument("--kinds", help="only these kinds of faults, with commas between")
    parser.add_argument("--keep", type=Path, help="keep what a failed seed left, in this folder")
    chosen = parser.parse_args()
    kinds = chosen.kinds.split(",") if chosen.kinds else None
    if unknown := set(kinds or ()) - plan.KINDS.keys():
        parser.error(f"no fault is called {', '.join(sorted(unknown))}; there are: {', '.join(plan.KINDS)}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    began_s = time.monotonic()
    outcomes: list[Outcome] = []
    for seed in seeds_of(chosen.seeds):
        if chosen.minutes is not None and time.monotonic() - began_s > 60 * chosen.minutes:
            break
        folder = Path(tempfile.mkdtemp(prefix="penstock-faults-"))
        try:
            drawn = plan.draw(seed, chosen.rounds, kinds)
            scene = Scene(
                topology.draw(seed, LINES), drawn, folder, SEED_S_MAX, lambda line: _say(f"  {line}")
            )
            outcomes.append(scene.play())
            _say(report.progress(outcomes[-1]))
            if outcomes[-1].faults():
                for fault in outcomes[-1].faults():
                    _say(f"  wrong: {fault}")
                if chosen.keep is not None:
                    shutil.copytree(
                        folder,
                        chosen.keep / f"seed-{seed}",
                        ignore=shutil.ignore_patterns("*.sock", "standby"),
                        dirs_exist_ok=True,
                    )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    _say("")
    for line in report.table(outcomes):
        _say(line)
    _say(report.as_json(outcomes))
    return int(any(outcome.faults() for outcome in outcomes))


def seeds_of(text: str) -> list[int]:
    """ "3,5,8-10" -> 3, 5, 8, 9, 10."""
    seeds: list[int] = []
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        seeds += range(int(first), int(last if dash else first) + 1)
    return seeds


def _leave(*_: object) -> None:
    """So that the seed ends its processes."""
    raise SystemExit(1)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
