"""What a manifest says of numbers and sizes: how many tasks and workers, and how large a worker is.

Neighbour: `topology` has them in its operators and its spec.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock.manifest.document import Cpu, Document, Memory, cel, cpu_millis

OPERATORS_MAX = 64
TASKS_MAX = 1024
SERVERS_MAX = 16
"""Store servers of one node."""
TASKS_MAX_DEFAULT = 8
WORKERS_MAX = 1024

TaskCount = Annotated[int, Field(ge=1, le=TASKS_MAX)]

_MIN_BELOW_MAX = "!has(self.max) || self.min <= self.max"
_INITIAL_BETWEEN = (
    "!has(self.initial) || (self.initial >= self.min && (!has(self.max) || self.initial <= self.max))"
)


def _check_order(least: int, initial: int | None, most: int) -> None:
    """Refuse min above max, and initial outside of the two."""
    if least > most:
        raise ValueError(f"min {least} is above max {most}")
    if initial is not None and not least <= initial <= most:
        raise ValueError(f"initial {initial} is not from min {least} to max {most}")


class TasksSpec(Document):
    """How many tasks an operator has, over all workers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (_MIN_BELOW_MAX, "tasks.min is above tasks.max"),
            (_INITIAL_BETWEEN, "tasks.initial is not between tasks.min and tasks.max"),
        )
    )

    min: Annotated[int, Field(ge=0, le=TASKS_MAX)] = 1
    """0: an operator without input gives back its last task, and gets one again with the next record."""
    max: TaskCount | None = None
    """Without it 8, or min or initial where that is more."""
    initial: TaskCount | None = None
    """At the start; without it min, or 1 where that is 0."""

    @property
    def first(self) -> int:
        """`initial` with its default filled in."""
        return self.initial if self.initial is not None else max(self.min, 1)

    @property
    def upper(self) -> int:
        """`max` with its default filled in."""
        return self.max if self.max is not None else max(self.min, self.initial or 0, TASKS_MAX_DEFAULT)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min, self.initial, self.upper)
        return self


class CoresSpec(Document):
    """Cores of one worker: it is resized in place between the two."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
                "cores.min is above cores.max",
            )
        )
    )

    min: Cpu = "1"
    max: Cpu = "4"

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if cpu_millis(self.min) > cpu_millis(self.max):
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class WorkersSpec(Document):
    """The pods (with `penstock run`, the process trees) that run the topology."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (_MIN_BELOW_MAX, "workers.min is above workers.max"),
            (_INITIAL_BETWEEN, "workers.initial is not between workers.min and workers.max"),
        )
    )

    min: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 1
    max: Annotated[int, Field(ge=1, le=WORKERS_MAX)] | None = None
    """Without it min, or initial where that is more."""
    initial: Annotated[int, Field(ge=1, le=WORKERS_MAX)] | None = None
    """At the start; without it min."""
    warm: Annotated[int, Field(ge=0, le=64)] = 0
    """Spare workers that keep a Spark session up without work."""
    cores: CoresSpec = CoresSpec()
    memory: Memory = "2Gi"
    """Of one worker with all its processes."""
    isolation: Literal["Topology", "Operator"] = "Topology"
    """Topology: a worker runs several operators. Operator: it runs one only."""

    @property
    def upper(self) -> int:
        """`max` with its default filled in."""
        return self.max if self.max is not None else max(self.min, self.initial or 0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min, self.initial, self.upper)
        return self
