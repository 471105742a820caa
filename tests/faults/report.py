"""What all seeds came to, for people and for machines. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from faults.gaps import by_kind
from faults.scene import Outcome

_KIND_WIDTH = 30


def progress(outcome: Outcome) -> str:
    """One line a seed."""
    faults = outcome.faults()
    hit = sum(struck.existed for struck in outcome.struck)
    worst = max(outcome.gaps, key=lambda gap: gap.seconds, default=None)
    pause = f"longest pause {worst.seconds:.2f} s ({worst.kind})" if worst else "no pause measured"
    verdict = f"{len(faults)} WRONG" if faults else "ok"
    return (
        f"seed {outcome.topology.seed:<4} {outcome.verdict.rows:>7} rows  {hit:>2} faults  "
        f"{outcome.seconds:5.0f} s  load {outcome.load:4.1f}  {verdict}  {pause}  "
        f"[{outcome.topology.words()}]"
    )


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Pauses by kind of fault, what was hit, then all that is wrong."""
    heads = f"{'times':>5} {'median':>8} {'longest':>8} {'bound':>6} {'others':>7}"
    yield f"{'fault':{_KIND_WIDTH}} {'workers':>7} {heads}"
    for line in by_kind([gap for outcome in outcomes for gap in outcome.gaps]):
        bound = f"{line.bound_s:g} s" if line.bound_s is not None else "-"
        others = f"{line.others_s:.2f} s" if line.others_s is not None else "-"
        yield (
            f"{line.kind:{_KIND_WIDTH}} {line.workers:>7} {line.count:>5} {line.median_s:>6.2f} s "
            f"{line.max_s:>6.2f} s {bound:>6} {others:>7}" + (f"  {line.above} above" if line.above else "")
        )
    yield ""
    yield "faults: " + _counts(faults_by_kind(outcomes))
    yield "processes hit: " + _counts(hits_by_role(outcomes))
    for outcome in outcomes:
        if faults := outcome.faults():
            yield f"\nseed {outcome.topology.seed} [{outcome.topology.words()}]"
            yield from (f"    {struck.words(outcome.began_s)}" for struck in outcome.struck)
            yield from (f"  wrong: {fault}" for fault in faults)


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))


def hits_by_role(outcomes: Sequence[Outcome]) -> Counter[str]:
    """What was really hit -> how often."""
    return Counter(str(hit.role) for outcome in outcomes for struck in outcome.struck for hit in struck.hit)


def faults_by_kind(outcomes: Sequence[Outcome]) -> Counter[str]:
    """Kind of fault -> how often it struck; those that found nobody apart."""
    found: Counter[str] = Counter()
    for outcome in outcomes:
        for struck in outcome.struck:
            name = struck.blow.kind.name
            found[name if struck.existed else f"{name} (nobody there)"] += 1
    return found


def as_json(outcomes: Sequence[Outcome]) -> str:
    """One line."""
    document = {
        "seeds": [outcome.topology.seed for outcome in outcomes],
        "failed": [outcome.topology.seed for outcome in outcomes if outcome.faults()],
        "rows": sum(outcome.verdict.rows for outcome in outcomes),
        "faults": dict(sorted(faults_by_kind(outcomes).items())),
        "hit": dict(sorted(hits_by_role(outcomes).items())),
        **{
            name: sum(getattr(outcome.verdict, name) for outcome in outcomes)
            for name in ("lost", "doubled", "reordered", "torn", "wrong")
        },
        "load_max": max((round(outcome.load, 1) for outcome in outcomes), default=0),
        "left": sum(len(outcome.left) for outcome in outcomes),
        "troubles": sum(len(outcome.troubles) for outcome in outcomes),
        "gaps": [
            {
                "fault": line.kind,
                "workers": line.workers,
                "times": line.count,
                "median_s": round(line.median_s, 3),
                "max_s": round(line.max_s, 3),
                "bound_s": line.bound_s,
                "others_max_s": None if line.others_s is None else round(line.others_s, 3),
                "above": line.above,
            }
            for line in by_kind([gap for outcome in outcomes for gap in outcome.gaps])
        ],
    }
    return json.dumps(document)
