"""Names and labels of everything the operator makes. No other module joins a name from parts.

A name that would be too long for its kind keeps its beginning and ends in a hash of the whole.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from penstock.schedule.store_ids import server_of

LABEL_TOPOLOGY = "penstock.dev/topology"
LABEL_TOPOLOGY_UID = "penstock.dev/topology-uid"
LABEL_WORKER = "penstock.dev/worker"
LABEL_OPERATOR = "penstock.dev/operator"
LABEL_NODE = "penstock.dev/node"
LABEL_SERVER = "penstock.dev/server"
"""Which of its node's store servers a worker works on; without it the first one."""
LABEL_STORE = "penstock.dev/store"
"""A store that is not the first one of its node, by its id."""
LABEL_HOME_UID = "penstock.dev/home-uid"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
ANNOTATION_TEMPLATE = "penstock.dev/template"
ANNOTATION_IDENTITY = "penstock.dev/identity"
ANNOTATION_ACCEPT_LOSS = "penstock.dev/accept-loss"
"""On a Topology: ids of losses of state that are accepted, with commas between."""
ANNOTATION_ASKED = "penstock.dev/asked"
"""On a Topology: somebody asks about it, and has put any text here, another one each time. Where it is
finished it gets a worker for that, for a while."""
COMPONENT_WORKER = "worker"
COMPONENT_SPARK_WORKER = "spark-worker"
COMPONENT_STORE = "node-store"
COMPONENT_PLAN = "plan"
COMPONENT_SCHEDULE = "schedule"
MANAGER = "penstock-operator"

LABEL_VALUE_LENGTH_MAX = 63
STATEFUL_SET_LENGTH_MAX = 52
"""Its pods' label controller-revision-hash is this name, "-" and up to 10 characters."""
_HASH_LENGTH = 8


def short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def fitted(name: str, length_max: int) -> str:
    """`name` if it is a label of DNS of at most `length_max`; else its beginning made one, and a hash."""
    if len(name) <= length_max and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name):
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return f"{plain[: length_max - _HASH_LENGTH - 1].rstrip('-')}-{short_hash(name)}".lstrip("-")


@lru_cache(maxsize=1 << 16)
def label_value(text: str) -> str:
    """`text` as a label's value: itself if it is one, else fitted."""
    if len(text) <= LABEL_VALUE_LENGTH_MAX and re.fullmatch(
        r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", text
    ):
        return text
    return fitted(text, LABEL_VALUE_LENGTH_MAX)


def component_labels(component: str) -> dict[str, str]:
    """What tells the operator's own objects from others."""
    return {LABEL_NAME: "penstock", LABEL_COMPONENT: component, LABEL_MANAGED_BY: MANAGER}


def topology_labels(topology: str, component: str) -> dict[str, str]:
    return {**component_labels(component), LABEL_TOPOLOGY: topology}


def worker_selector(topology: str) -> str:
    """What selects the worker pods of a topology."""
    labels = {LABEL_COMPONENT: COMPONENT_WORKER, LABEL_TOPOLOGY: label_value(topology)}
    return ",".join(f"{name}={value}" for name, value in labels.items())


def store_name(release: str, store: str) -> str:
    """The StatefulSet of a store, by the store's id. Its pod is this name and "-0"."""
    return fitted(f"{release}-store-{store}", STATEFUL_SET_LENGTH_MAX)


def store_names_beginnings(release: str) -> tuple[str, ...]:
    """What `store_name` begins with one of, whatever the node: as it is, and as `fitted` keeps it."""
    whole = f"{release}-store-"
    fitted_one = re.sub(r"[^a-z0-9]+", "-", whole.lower())
    return whole, fitted_one[: STATEFUL_SET_LENGTH_MAX - _HASH_LENGTH - 1]


def store_labels(store: str) -> dict[str, str]:
    """What tells the objects of a store (by its id) from those of all others. The first one of a node goes by
    the node; no further one has that label, for what selects the first would select it too."""
    label = LABEL_STORE if server_of(store) else LABEL_NODE
    return {**component_labels(COMPONENT_STORE), label: label_value(store)}


def store_address(release: str, store: str, headless_service: str, namespace: str) -> str:
    return f"{store_name(release, store)}-0.{headless_service}.{namespace}.svc:6379"


def auth_secret_name(release: str) -> str:
    """The Secret with the passwords of the node stores, as the chart has it named."""
    return f"{release}-store-auth"


def workers_secret_name(release: str) -> str:
    """The Secret with what the workers of each topology log in by, in the namespace of their pods."""
    return f"{release}-store-workers"


def namespaces_map_name(release: str) -> str:
    """The ConfigMap that tells agents which further namespaces are served, as the chart has it named."""
    return f"{release}-namespaces"


def worker_name(topology: str, operator: str, index: int) -> str:
    """A worker pod; `operator` is "" where a worker runs several."""
    # The hash tells "a-b" of topology "c" from "b" of "c-a".
    stem = f"{topology}-{operator}-{short_hash(f'{topology}.{operator}')}" if operator else topology
    return f"{fitted(stem, LABEL_VALUE_LENGTH_MAX - 6)}-w{index}"


def worker_index(name: str) -> int:
    """The number at the end of a worker's name; -1 for a name that has none."""
    number = name.rpartition("-w")[2]
    return int(number) if number.isdigit() else -1


def spark_worker_name(worker: str, node: str) -> str:
    """The pod on `node` in which remote tasks of `worker` run."""
    return fitted(f"{worker}-on-{node}", LABEL_VALUE_LENGTH_MAX)


def schedule_name(topology: str, operator: str) -> str:
    """With a dot, which neither name holds."""
    return f"{topology}.{operator}"


def plan_name(topology: str, template_hash: str) -> str:
    return f"{topology}-plan-{template_hash}"


def disruption_budget_name(topology: str) -> str:
    return f"{topology}-workers"
