"""`Topology`: what to compute, as a user writes it.

The models check each field for itself. What holds between fields and operators (one role each, known
inputs, no cycle, schemas that flow) is `graph`'s for people at a terminal, and CEL's, beside the
models here, for the API server. The graph itself is fixed for life, because state, inboxes and positions
go by it. `compile` turns a Topology into a `Plan`; `specs` has its parts, `pods.pod_settings` what is
said about pods, and `penstock.connectors` the kinds of sources and sinks.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from penstock.api.pods.pod_settings import ImageName, PodSettings, PullPolicy
from penstock.api.specs.metadata import NOT_SEEN_YET, ObjectMeta
from penstock.api.specs.operator_spec import INITIAL, LATE, STAGE_SINK, OperatorSpec
from penstock.api.specs.sizes_spec import OPERATORS_MAX, WorkersSpec
from penstock.api.specs.topology_status import TopologyStatus
from penstock.connectors.registry import SINKS, SinkSpec
from penstock.dataflow.letter_columns import DEAD_LETTERS
from penstock.manifest.document import (
    ApiVersion,
    Cpu,
    Document,
    ModuleName,
    Name,
    ObjectName,
    StoreMemory,
    cel,
    keyed_list,
)

DURABILITY_IN_CLUSTER = "Disk"


_SAME_LETTERS = (
    "!has(oldSelf.deadLetters) || (has(self.deadLetters) && "
    + " && ".join(f"has(self.deadLetters.{kind}) == has(oldSelf.deadLetters.{kind})" for kind in SINKS)
    + ")"
)


class CodeSpec(Document):
    """Where the functions and processors come from: exactly one place."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("has(self.module) != has(self.configMap)", "exactly one of module and configMap")
        )
    )

    module: ModuleName | None = None
    """A module in the image, or beside the manifest."""
    config_map: ObjectName | None = None
    """A ConfigMap of .py files."""


class LocalitySpec(Document):
    """How tables are made for the operators whose `locality` is Auto."""

    dry_run: bool = False
    """Count, decide and show what would stay on its node, without making a table."""


class TopologySpec(Document):
    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "has(self.code) || !self.operators.exists(o, has(o.map) || has(o.mapInPandas) || "
                "has(o.mapInArrow) || has(o.processor) || "
                "(has(o.aggregate) && o.aggregate.exists(a, a.__function__.contains(':'))))",
                "code is needed where an operator has a step, a processor or an aggregator of your own",
            ),
            (
                "self.operators.all(o, !has(o.inputs) || o.inputs.all(i, "
                "self.operators.exists(p, p.name == i && !has(p.sink))))",
                "each input is the name of an operator that is not a sink",
            ),
            (
                # The list of one names the names: made anew for each input, they cost more than CEL may.
                "[self.operators.map(p, p.name)].all(names, self.operators.all(o, !has(o.inputs) || "
                "o.inputs.all(i, names.indexOf(i) < names.indexOf(o.name))))",
                "inputs come first: list an operator below all operators that it reads; "
                "a cycle cannot be listed so, because rows cannot come back to where they were",
            ),
            (
                "self.operators.all(o, !has(o.lateTo) || "
                f"!self.operators.exists(p, p.name == o.name + '{LATE}'))",
                f"the sink of lateTo has its operator's name and '{LATE}': rename the operator called so",
            ),
            (
                "self.operators.all(o, !has(o.initialState) || "
                f"!self.operators.exists(p, p.name == o.name + '{INITIAL}'))",
                f"the source of initialState has its operator's name and '{INITIAL}': rename the operator "
                "called so",
            ),
            (
                "self.operators.size() == oldSelf.operators.size() && "
                "oldSelf.operators.all(o, self.operators.exists(p, p.name == o.name))",
                "operators are fixed for life, because their state goes by their names: to add, remove or "
                "rename one, delete the Topology and apply it anew",
            ),
            (
                f"(has(self.durability) ? self.durability : '{DURABILITY_IN_CLUSTER}') == "
                f"(has(oldSelf.durability) ? oldSelf.durability : '{DURABILITY_IN_CLUSTER}')",
                "durability is fixed for life",
            ),
            ("self.operators.exists(o, has(o.source))", "a topology needs a source"),
            (
                "self.remoteTasks != 'Allowed' || "
                f"!self.operators.exists(o, has(o.sink) && has(o.sink.{STAGE_SINK}))",
                f"remoteTasks Allowed and {STAGE_SINK} do not go together: the function is called in the "
                "main process of the worker that its task is at",
            ),
            (
                "self.remoteTasks != 'Allowed' || !has(self.deadLetters) || "
                f"!has(self.deadLetters.{STAGE_SINK})",
                f"remoteTasks Allowed and {STAGE_SINK} do not go together: the function is called in the "
                "main process of the worker that its task is at",
            ),
            (
                f"!has(self.deadLetters) || !self.operators.exists(o, o.name == '{DEAD_LETTERS}')",
                f"the sink of deadLetters is called '{DEAD_LETTERS}': rename the operator called so",
            ),
            (
                "has(self.deadLetters) || !self.operators.exists(o, has(o.onError) && has(o.onError.to) && "
                "o.onError.to == 'Sink')",
                "onError.to Sink needs deadLetters, which says which sink",
            ),
            (
                "!has(self.deadLetters) || !self.operators.exists(o, has(o.onError) && "
                "has(o.onError.keep) && !has(o.onError.to))",
                "keep is of dead letters in the store, and with deadLetters they go to the sink: give to: "
                "Store too, or leave keep out",
            ),
            (_SAME_LETTERS, "deadLetters may be added, and the kind of sink is fixed for life from then on"),
            (
                f"!has(self.deadLetters) || has(oldSelf.deadLetters) || !has(self.deadLetters.{STAGE_SINK})",
                f"deadLetters of {STAGE_SINK} stand there from the start: it is a stage, and stages are "
                "fixed for life",
            ),
            (
                "!has(self.durability) || self.durability != 'Replicated'",
                "durability Replicated comes with replication; use Disk or Process",
            ),
        )
    )

    code: CodeSpec | None = None
    dead_letters: SinkSpec | None = None
    """Where dead letters go: rows on which code raises, and what a source cannot read, of the operators whose
    onError says DeadLetter. The sink is called dead-letters; its columns are the same for all. Without it
    they stay in the store. It may be added; its kind and its place are fixed for life."""
    durability: Literal["Process", "Disk", "Replicated"] | None = None
    """What survives: Process, the kill of any process; Disk, also a node's loss of power; Replicated, also
    the loss of a node. Without it Process in `penstock run`, Disk in a cluster."""
    workers: WorkersSpec = WorkersSpec()
    remote_tasks: Literal["Never", "Allowed"] = "Never"
    """Whether a worker may run tasks on another node when its own is full: Allowed is for `penstock run`
    only as yet."""
    task_cpu: Cpu = "1"
    """What one task asks of its pod, in cores or slices such as 200m."""
    store_memory: StoreMemory = "256Mi"
    """What the topology may take of each node store's memory: state, inboxes and outboxes."""
    image: ImageName | None = None
    """The workers' image; without it the one that Penstock was installed with."""
    image_pull_policy: PullPolicy | None = None
    """Without it the one that Penstock was installed with."""
    pod: PodSettings = Field(default_factory=PodSettings)
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Where topologies compete for room, the one with the higher number is served first."""
    paused: bool = False
    """Sources stop, what was read is worked off, and all is held until this is false again."""
    locality: LocalitySpec = LocalitySpec()
    deletion_policy: Literal["Delete", "Retain"] = "Delete"
    """What becomes of state when the Topology is deleted. Retain: a Topology of the same name that is applied
    later goes on where this one was."""
    operators: Annotated[tuple[OperatorSpec, ...], keyed_list(OPERATORS_MAX, "name", minimum=1)]

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The Secrets that its sources and sinks name, each once."""
        kinds = (
            *(kind for one in self.operators for kind in (one.source, one.sink, one.late_to)),
            self.dead_letters,
        )
        named = (name for kind in kinds if kind is not None for name in kind.given.secret_names)
        return tuple(dict.fromkeys(named))


class TopologyMeta(ObjectMeta):
    name: Name


class Topology(Document):
    """What to compute: a graph of sources, steps, keyed processors and sinks."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$')",
                "the name has at most 40 small letters, digits and '-'",
            )
        )
    )

    api_version: ApiVersion
    kind: Literal["Topology"]
    metadata: TopologyMeta
    spec: TopologySpec
    status: Annotated[TopologyStatus | None, Field(json_schema_extra=NOT_SEEN_YET)] = None
