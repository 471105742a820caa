"""Every sink of ours that needs no server, and sinks of users' code, through the suite that users have."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.connectors import SinkConformance
from scenes.users_sinks import batches_closed, rows_in_ledger


class TestJsonlFiles(SinkConformance):
    def sink(self, folder: Path) -> dict[str, Any]:
        return {"files": {"path": "out/", "format": "jsonl"}}

    def read_back(self, folder: Path) -> list[Any]:
        lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
        return [tuple(json.loads(line).values()) for line in lines]


class TestConsole(SinkConformance):
    """As a worker in a cluster prints it."""

    delivers = "AtLeastOnce"

    @pytest.fixture(autouse=True)
    def _printed(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd
        self.lines: list[str] = []

    def sink(self, folder: Path) -> dict[str, Any]:
        return {"console": {}}

    def read_back(self, folder: Path) -> list[Any]:
        self.lines += self.capfd.readouterr().out.splitlines()
        return [tuple(json.loads(line).values()) for line in self.lines]


class OfUsers(SinkConformance):
    """A data source of PySpark's that keeps a file for each batch."""

    options: Mapping[str, str] = {}

    def sink(self, folder: Path) -> dict[str, Any]:
        options = {"folder": str(folder / "ledger"), **self.options}
        return {"dataSource": {"class": "scenes.users_sinks:Ledger", "options": options}}

    def read_back(self, folder: Path) -> list[Any]:
        return rows_in_ledger(folder / "ledger")


class TestStreamWriter(OfUsers):
    pass


class TestArrowStreamWriter(OfUsers):
    options: Mapping[str, str] = {"arrow": "yes"}


class TestForeach(SinkConformance):
    """A class that notes its calls. Its reader takes each batch once, as it was closed."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scenes.users_sinks.Notes.file", os.fspath(tmp_path / "notes"))

    def sink(self, folder: Path) -> dict[str, Any]:
        return {"foreach": {"call": "scenes.users_sinks:Notes"}}

    def read_back(self, folder: Path) -> list[Any]:
        return batches_closed(folder / "notes")

    def refused(self) -> tuple[Any, str]:
        return ("bad", 1), r"operator out: scenes\.users_sinks:Notes.*a bad word"
