"""The node agent as a process: settings from the environment, signals, and the order of starting and ending.

`penstock agent` and `python -m penstock_operator.agent` call `run_agent`. Exit codes: 0 stopped as asked, 1
it can never work (one sentence on stderr).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock_operator.agent import endpoint
from penstock_operator.agent.kubernetes_feed import connect
from penstock_operator.agent.node_agent import NodeAgent
from penstock_operator.agent.schedule_feed import ScheduleFeed
from penstock_operator.agent.settings import AgentSettings, settings_from

SWITCH_S = 0.0005
"""Threads wait for each other at most so long: deliveries must not wait while another thread parses."""


def run_agent(environment: Mapping[str, str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; answers the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    sys.setswitchinterval(SWITCH_S)
    try:
        settings = settings_from(os.environ if environment is None else environment)
        asyncio.run(_run(settings))
    except PenstockError as error:
        sys.stderr.write(f"agent: {error}\n")
        return 1
    return 0


async def _run(settings: AgentSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    namespaces = served_namespaces(settings.namespaces_file)
    feed = await connect(settings.namespace, settings.kubeconfig, namespaces)
    await run_until(stop, settings, feed)


def served_namespaces(file: str | None) -> Callable[[], Sequence[str]]:
    """Which further namespaces a file names now; none where it is not there."""

    def served() -> Sequence[str]:
        try:
            return Path(file).read_text(encoding="utf-8").split() if file else ()
        except OSError:
            return ()

    return served


async def run_until(stop: asyncio.Event, settings: AgentSettings, feed: ScheduleFeed) -> None:
    """An agent with its endpoint, on this event loop, until `stop`."""
    agent = NodeAgent(settings, feed)
    began_s = time.monotonic()
    runner = await endpoint.serve(agent.view, lambda: time.monotonic() - began_s, settings.port)
    try:
        await agent.run(stop)
    finally:
        await runner.cleanup()
        await feed.close()
