"""Writes that do not depend on each other, begun together: who waits, waits for the slowest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from penstock_operator.cluster.kubernetes_api.lease import LeaseLost


async def side_by_side(*writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each answers, once all have ended. Raises what one of them raised, LeaseLost before anything
    else."""
    answers = await asyncio.gather(*writes, return_exceptions=True)
    faults = [one for one in answers if isinstance(one, BaseException)]
    for fault in sorted(faults, key=lambda one: not isinstance(one, LeaseLost)):
        raise fault
    return answers
