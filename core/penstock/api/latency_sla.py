"""`LatencySLA`: how fast. The average latency over any window T stays at or below L.

StreamSwitch (section 2) names the parameters: latency bound L, window T, alert threshold l, safety
margin epsilon, examine interval delta.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from penstock.api.specs.metadata import NOT_SEEN_YET, Conditions, ObjectMeta, ObservedGeneration
from penstock.api.specs.sizes_spec import TASKS_MAX, WORKERS_MAX
from penstock.manifest.document import (
    ApiVersion,
    Cpu,
    Document,
    Name,
    PositiveDuration,
    atomic_list,
    cel,
    duration_us,
)

_ORDERED = "!has(self.min) || !has(self.max) || self.min <= self.max"


class TaskBounds(Document):
    """Tasks of each operator in scope. They narrow what the Topology allows, never widen it."""

    model_config = ConfigDict(json_schema_extra=cel((_ORDERED, "min is above max")))

    min: Annotated[int, Field(ge=1, le=TASKS_MAX)] | None = None
    max: Annotated[int, Field(ge=1, le=TASKS_MAX)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class WorkerBounds(Document):
    """Workers of the topology. They narrow what the Topology allows, never widen it."""

    model_config = ConfigDict(json_schema_extra=cel((_ORDERED, "min is above max")))

    min: Annotated[int, Field(ge=1, le=WORKERS_MAX)] | None = None
    max: Annotated[int, Field(ge=1, le=WORKERS_MAX)] | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


class BoundsSpec(Document):
    tasks: TaskBounds | None = None
    workers: WorkerBounds | None = None


class BudgetSpec(Document):
    """What keeping the SLA may cost."""

    cores: Cpu
    """Cores of all tasks in scope together, at most."""


class LatencySLASpec(Document):
    model_config = ConfigDict(
        json_schema_extra=cel(
            ("duration(self.window) >= duration(self.interval)", "window is shorter than interval"),
            ("self.topology == oldSelf.topology", "topology is fixed; make another LatencySLA"),
        )
    )

    topology: Name
    """The Topology's name, in the same namespace."""
    operator: Name | None = None
    """The operator that the latency is measured at, from its inbox to its output. Without it: end to end,
    from source to each sink."""
    latency: PositiveDuration
    """L: the average latency over any window stays at or below this."""
    window: PositiveDuration = "1s"
    """T: the length of that window."""
    alert_threshold: PositiveDuration = "100ms"
    """l: an instantaneous latency above it is an alarm."""
    safety_margin: Annotated[float, Field(ge=0, lt=1)] = 0.2
    """epsilon: the share of a task's service rate that is held in reserve."""
    interval: PositiveDuration = "100ms"
    """delta: how often the topology is examined."""
    source_lag: PositiveDuration | None = None
    """How far behind what is there to be read the sources may be whose rows come to the operators in scope,
    by the time of the record that was read last. What waits there is in no inbox, and so in no latency.
    Without it that is not judged. Sources of Kafka tell it."""
    policy: Literal["StreamSwitch", "Elasticutor", "Hybrid"] = "Hybrid"
    bounds: BoundsSpec = BoundsSpec()
    budget: BudgetSpec | None = None
    dry_run: bool = False
    """Decide and show, without acting."""

    @model_validator(mode="after")
    def _window_holds_an_interval(self) -> Self:
        if message := shorter_window(self.window, self.interval):
            raise ValueError(message)
        return self


def shorter_window(window: str, interval: str) -> str:
    """What is wrong with a window that holds no interval, both durations; "" when it does."""
    if duration_us(window) >= duration_us(interval):
        return ""
    return f"window {window} is shorter than interval {interval}"


DECISIONS_SHOWN = 10
ACTIONS_SHOWN = 20


class SLADecision(Document):
    """One decision: what was seen and chosen, and later what it brought."""

    number: Annotated[int, Field(ge=1)]
    time: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
    operator: Annotated[str, StringConstraints(max_length=64)] = ""
    treatment: Annotated[str, StringConstraints(max_length=64)]
    """ScaleOut, ScaleIn, LoadBalance, Cores, Repartition or Hold."""
    rule: Annotated[str, StringConstraints(max_length=64)] = ""
    """What chose it, in a word or two."""
    reason: Annotated[str, StringConstraints(max_length=4096)]
    actions: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=1024)], ...], atomic_list(ACTIONS_SHOWN)
    ] = ()
    predicted: Annotated[str, StringConstraints(max_length=256)] = ""
    """The worst latency that was expected without it, and with it."""
    brought: Annotated[str, StringConstraints(max_length=1024)] = ""
    """What it came to, over the window after it."""
    dry_run: bool = False


class LatencySLAStatus(Document):
    observed_generation: ObservedGeneration | None = None
    conditions: Conditions = ()
    met: bool | None = None
    """Whether the last window kept the bound."""
    latency: Annotated[str, StringConstraints(max_length=32)] | None = None
    """Average over the last window."""
    predicted_latency: Annotated[str, StringConstraints(max_length=32)] | None = None
    success_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of the windows of the last five minutes that kept the bound."""
    success_rate_since_start: Annotated[float, Field(ge=0, le=1)] | None = None
    """The same since this operator process took over."""
    tasks: Annotated[int, Field(ge=0)] | None = None
    """Tasks of all operators in scope."""
    executors: Annotated[int, Field(ge=0)] | None = None
    mean_tasks: Annotated[float, Field(ge=0)] | None = None
    """Since this operator process took over."""
    last_decision: Annotated[str, StringConstraints(max_length=4096)] | None = None
    """One sentence: what was seen, what was chosen."""
    last_scaled: Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})] | None = None
    decisions: Annotated[tuple[SLADecision, ...], atomic_list(DECISIONS_SHOWN)] = ()
    """The last ones, the newest first."""


class LatencySLA(Document):
    """How fast a Topology, or one operator of it, has to be."""

    api_version: ApiVersion
    kind: Literal["LatencySLA"]
    metadata: ObjectMeta
    spec: LatencySLASpec
    status: Annotated[LatencySLAStatus | None, Field(json_schema_extra=NOT_SEEN_YET)] = None
