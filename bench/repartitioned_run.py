"""`penstock` whose LatencySLAs are kept the resource-centric way: `python -m bench.repartitioned_run run`.

The policy is ResourceCentric, whatever the SLA names, and shards change hands in a pause of the whole
operator. Only the bench of shuffled keys uses it, for its peer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.repartitioning import RepartitioningLoop

from penstock.control.baselines.resource_centric import ResourceCentric
from penstock.control.policy import Policy
from penstock.sla.decision_record import DecisionKeeper
from penstock.sla.promise import Promise
from penstock_operator.cli.main import main
from penstock_operator.local import run_start


def keep(
    promise: Promise,
    _: Policy,
    shards: Mapping[str, Sequence[str]],
    edges: Sequence[tuple[str, str]],
    log: DecisionKeeper,
) -> RepartitioningLoop:
    """What stands in for `SlaLoop` in a run."""
    return RepartitioningLoop(promise, ResourceCentric(promise.scope), shards, edges, log)


if __name__ == "__main__":
    run_start.SlaLoop = keep  # type: ignore[assignment, misc]
    main()
