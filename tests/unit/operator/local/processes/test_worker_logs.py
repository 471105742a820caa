"""A worker's log is bounded, and kept over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_operator.local.processes import worker_logs
from penstock_operator.local.processes.worker_logs import begin_log, bound_log, earlier_log


def test_a_log_that_grew_too_large_goes_on_from_nothing_and_is_kept_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_logs, "BYTES_MAX", 100)
    log = tmp_path / "w0.log"
    assert not bound_log(log)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100)
        assert not bound_log(log)
        writer.write(b"b")
        assert bound_log(log)
        writer.write(b"c")
        assert log.read_bytes() == b"c"
        assert earlier_log(log).read_bytes() == b"a" * 100 + b"b"


def test_a_new_run_keeps_what_the_one_before_wrote(tmp_path: Path) -> None:
    log = tmp_path / "w0.log"
    begin_log(log)
    log.write_text("first")
    begin_log(log)
    assert not log.exists()
    assert earlier_log(log).read_text() == "first"
