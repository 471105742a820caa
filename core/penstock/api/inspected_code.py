"""What the worker's inspection of user code answers: the form that it is printed and read in.

Neighbours: `penstock_worker.user_code.inspect_code` prints it, `penstock_operator.checking.code_inspection`
reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.manifest.faults import Fault


@dataclass(frozen=True, slots=True)
class InspectedCode:
    """`notes` are sentences on what works, and perhaps not as meant; `state` is operator -> variable -> what
    it is declared as, in words."""

    faults: list[Fault] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state: dict[str, dict[str, str]] = field(default_factory=dict)
