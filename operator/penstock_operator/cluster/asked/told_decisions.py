"""`penstock explain --cluster`: the last decisions about a Topology, as the statuses of its LatencySLAs and
its own tell them.

What was seen of each executor and edge is in the operator's log alone. Neighbours: `cluster.sla.decisions`
and `cluster.locality.decisions` make the entries, `local.showing.explain` has the decisions of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock_operator.cluster.asked.reached import reached, topology_named
from penstock_operator.cluster.kubernetes_api.port import LATENCY_SLAS, ClusterApi, name_of

_INDENT = "    "


@dataclass(frozen=True, slots=True)
class ToldDecision:
    """An entry of a status; `sla` is the LatencySLA that it stands in, "" for the Topology's, on tables."""

    sla: str
    entry: Mapping[str, Any]


def told_in_cluster(
    topology: str, namespace: str, kubeconfig: str | None, context: str | None
) -> list[ToldDecision]:
    """As `told_decisions`, with the rights of who asks. Raises the cluster's errors too."""
    with reached(namespace, kubeconfig, context) as there:
        return there.loop.wait(told_decisions(there.cluster, topology))


async def told_decisions(cluster: ClusterApi, topology: str) -> list[ToldDecision]:
    """The oldest first. PermanentError: there is no such Topology."""
    status = (await topology_named(cluster, topology)).get("status") or {}
    found = [ToldDecision("", entry) for entry in (status.get("locality") or {}).get("decisions") or ()]
    for sla in (await cluster.list(LATENCY_SLAS)).items:
        if sla["spec"]["topology"] == topology:
            told = (sla.get("status") or {}).get("decisions") or ()
            found += [ToldDecision(name_of(sla), entry) for entry in told]
    return sorted(found, key=lambda one: (one.entry["time"], one.sla, one.entry["number"]))


def decisions_text(decisions: Sequence[ToldDecision]) -> str:
    """As `penstock explain` shows those of a run, as far as a status tells it."""
    return "\n".join(line for one in decisions for line in _lines(one))


def decisions_json(decisions: Sequence[ToldDecision]) -> bytes:
    """For machines: a list, one object a decision, with the fields of the status; `kind` is `tables` or
    `decision`, and that names its `sla`."""
    objects = [
        {"kind": "decision", "sla": one.sla, **one.entry} if one.sla else {"kind": "tables", **one.entry}
        for one in decisions
    ]
    return msgspec.json.format(msgspec.json.encode(objects), indent=2) + b"\n"


def _lines(told: ToldDecision) -> Iterator[str]:
    entry = told.entry
    actions = entry.get("actions") or ()
    is_dry = bool(entry.get("dryRun"))
    dry = ", dry run: not carried out" if is_dry else ""
    if told.sla:
        about = f"{entry.get('operator') or 'the topology'}: {entry['treatment']}"
    else:
        about = f"tables: {'ChangeTables' if actions else 'Hold'}"
    rule = f", rule {entry['rule']}" if entry.get("rule") else ""
    at = str(entry["time"]).replace("T", " ")
    yield f"#{entry['number']} {at}  {about} ({told.sla or 'locality'}{rule}){dry}"
    if entry.get("predicted"):
        yield f"{_INDENT}predicted  {entry['predicted']}"
    yield f"{_INDENT}chosen     {entry['reason']}"
    yield f"{_INDENT}           {'; '.join(actions) or 'nothing is done'}"
    if entry.get("brought"):
        yield f"{_INDENT}brought    {entry['brought']}"
    elif actions and not is_dry:
        yield f"{_INDENT}brought    not known: it was not done, or was not measured yet"
