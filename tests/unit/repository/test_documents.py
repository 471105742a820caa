"""Documents name what is there: files, make targets, decision records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from house import ROOT, make_targets, tracked_files

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FOLDERS = (".ci", "bench", "charts", "core", "crds", "docs", "e2e", "examples", "images", "operator",
           "simulation", "tests", "tools", "worker")  # fmt: skip
OUR_PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*")
MADE_BY_RUNNING = ("bench/results", "examples/word-count/out", "examples/word-count/texts")
SECTIONS = ("## Context", "## Decision", "## Alternatives", "## Consequences")

DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = [link for link in LINK.findall(document.read_text(encoding="utf-8")) if "://" not in link]
    targets = [link.split("#")[0] for link in links if not link.startswith("#")]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_path_in_a_document_exists(document: Path) -> None:
    prose = FENCE.sub("", document.read_text(encoding="utf-8"))
    paths = [code for code in CODE.findall(prose) if OUR_PATH.fullmatch(code)]
    missing = [path for path in paths if not (ROOT / path).exists() and not path.startswith(MADE_BY_RUNNING)]
    assert missing == []


def test_no_way_through_the_code_names_a_module_twice() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    ways = text.split("## Four ways through the code")[1].split("\n## ")[0].split("\n### ")[1:]
    assert len(ways) == 4
    for way in ways:
        modules = [code for code in CODE.findall(way) if code.endswith((".py", ".lua"))]
        assert len(modules) > 10, way
        assert all((ROOT / module).is_file() for module in modules), way
        assert len(modules) == len(set(modules)), way


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_make_target_in_a_document_exists(document: Path) -> None:
    named = re.findall(
        r"\bmake ([a-z][a-z-]*[a-z])\b", " ".join(CODE.findall(document.read_text(encoding="utf-8")))
    )
    assert [target for target in named if target not in make_targets()] == []


@pytest.mark.parametrize("record", DECISIONS, ids=name_of)
def test_a_decision_record_is_listed_and_complete(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    assert [section for section in SECTIONS if f"\n{section}\n" not in text] == []
    title = text.splitlines()[0].removeprefix("# ")
    assert f"[{title}](decisions/{record.name})" in (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert title.startswith(f"{record.name[:4]}: ")


def test_decision_records_are_numbered_without_a_hole() -> None:
    assert [int(record.name[:4]) for record in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_the_readme_explains_the_examples_as_they_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    examples = (
        "word-count/topology.yaml",
        "nexmark/windows.yaml",
        "kafka/topology.yaml",
        "stock-exchange/sla.yaml",
    )
    kept = [(ROOT / "examples" / name).read_text(encoding="utf-8") for name in examples]
    assert [yaml.safe_load(text) for text in shown] == [yaml.safe_load(text) for text in kept]
