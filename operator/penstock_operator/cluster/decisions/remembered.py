"""What `decide` remembers from one look to the next. It may be lost at any time.

Only since-whens and samples: a fresh memory makes waits begin anew and figures missing, and changes no
decision otherwise. Times are of the clock that `decide` is given (monotonic seconds). Neighbour: `figures`
makes the samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.figures.samples import Samples


@dataclass(frozen=True, slots=True)
class Memory:
    """`since_s` is what has been so, and since when: "missing:UID", "unready:UID", "idle:count", ..."""

    since_s: Mapping[str, float] = field(default_factory=dict)
    samples: Samples = ()
    status: Mapping[str, Any] | None = None
    """As last decided: what is read back may be older."""
    backlog: tuple[int, ...] | None = None
    """Fingerprint of the last look at all queues: two that are equal show that nothing was under way."""
