"""The wire to a store that is away, and what a store's errors are to the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PermanentError
from penstock.store.port import ProtocolMismatch, StoreDiskFull, StoreFull, StoreUnreachable
from penstock.store.redis.connection import ServerError, Wire, translate


def test_a_store_that_is_away_may_be_tried_any_number_of_times(tmp_path: Path) -> None:
    wire = Wire(f"unix://{tmp_path}/none.sock", timeout_s=1)
    for _ in range(300):
        with pytest.raises(StoreUnreachable, match="No such file"):
            wire.exchange([("PING",)])


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", StoreUnreachable),
        ("ERR max number of clients reached", StoreUnreachable),
        ("NOREPLICAS Not enough good replicas to write.", StoreUnreachable),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        ("MISCONF Errors writing to the AOF file", StoreDiskFull),
        ("NOAUTH Authentication required.", PermanentError),
        ("NOPERM User worker has no permissions to run the 'flushall' command", PermanentError),
        ("ERR Function not found", ProtocolMismatch),
        ("ERR user_script:1: attempt to index a nil value", ServerError),
    ],
)
def test_an_error_reply_is_one_of_the_ports_errors_or_a_bug(message: str, kind: type[Exception]) -> None:
    assert type(translate(message)) is kind
