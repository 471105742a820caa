"""How fast the machine was while something was measured."""

from __future__ import annotations

import asyncio

from bench.pace import Pace, additions_s, machine_stolen_s

from clocks.running import run


def test_it_tells_how_long_a_piece_of_work_took_and_what_the_host_took_since_it_was_asked_last() -> None:
    async def story() -> None:
        now_s, stolen_s, works_s = [100.0], [7.0], iter([0.001, 0.002, 0.009, 0.004])
        pace = Pace(lambda: now_s[0], lambda: next(works_s), lambda: stolen_s[0])
        running = asyncio.create_task(pace.run())
        await asyncio.sleep(0)
        now_s[0], stolen_s[0] = 110.0, 12.0
        assert pace.told() == {"piece_ms_p50": 1.0, "piece_ms_max": 1.0, "stolen_cores": 0.5}
        running.cancel()
        now_s[0] = 120.0
        assert pace.told() == {"piece_ms_p50": 2.0, "piece_ms_max": 2.0, "stolen_cores": 0.0}

    run(story())


def test_what_the_machine_tells_of_itself_is_seconds_that_never_go_back() -> None:
    before_s = machine_stolen_s()
    assert additions_s() > 0
    assert machine_stolen_s() >= before_s >= 0
