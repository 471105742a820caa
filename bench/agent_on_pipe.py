"""A node agent whose Schedules come over a pipe: `python -m bench.agent_on_pipe NODE STORE_URL PORT`.

The agent is the product's, on a feed in memory. Each line on stdin is JSON: {"name": ..., "spec": ...},
an object as an API server would hold it; or {"every_s": seconds}, N-Storm's T_S: objects are seen so
often only (0: at once). Each line on stdout is a report, {"name", "version", "moving"}. It ends with its
stdin. Neighbour: `two_nodes`, which starts two of them.
"""

from __future__ import annotations

import asyncio
import json
import sys

from penstock.schedule.record import AppliedPlace
from penstock_operator.agent.main import SWITCH_S, run_until
from penstock_operator.agent.schedule_feed import SeenSchedule
from penstock_operator.agent.settings import AgentSettings
from penstock_simulation.twins.memory_feed import MemoryApi, MemoryFeed

LINE_BYTES_MAX = 16 << 20
IDLE_S = 0.1


class ToldFeed(MemoryFeed):
    """A feed in memory that tells on stdout what the agent reports."""

    async def report(self, seen: SeenSchedule, applied: AppliedPlace) -> None:
        await super().report(seen, applied)
        told = {"name": seen.name, "version": applied.version, "moving": applied.shards_moving}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


async def _run(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    api = MemoryApi()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )

    every_s = 0.0
    seen_late: dict[str, dict[str, object]] = {}

    async def take() -> None:
        nonlocal every_s
        while line := await reader.readline():
            told = json.loads(line)
            if "every_s" in told:
                every_s = told["every_s"]
            elif every_s:
                seen_late[told["name"]] = told["spec"]
            else:
                api.put(told["name"], told["spec"])
        stop.set()

    async def look() -> None:
        while True:
            await asyncio.sleep(every_s or IDLE_S)
            while seen_late:
                api.put(*seen_late.popitem())

    tasks = [asyncio.create_task(take()), asyncio.create_task(look())]
    await run_until(stop, settings, ToldFeed(api))
    for task in tasks:
        task.cancel()


def main() -> None:
    node, store_url, port = sys.argv[1:]
    sys.setswitchinterval(SWITCH_S)
    asyncio.run(_run(AgentSettings("bench", node, node, store_url, port=int(port))))


if __name__ == "__main__":
    main()
