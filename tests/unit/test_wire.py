"""The wire to a store that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.port import StoreUnreachable
from penstock.store.wire import Wire


def test_a_store_that_is_away_may_be_tried_any_number_of_times(tmp_path: Path) -> None:
    wire = Wire(f"unix://{tmp_path}/none.sock", timeout_s=1)
    for _ in range(300):
        with pytest.raises(StoreUnreachable, match="No such file"):
            wire.exchange([("PING",)])
