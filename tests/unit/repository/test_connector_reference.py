"""The tables of fields in docs/connectors are those of the models as they are."""

from __future__ import annotations

import pytest
from tools.connector_reference import KINDS, PAGES, marked, reference, written

TEXTS = {page.name: page.read_text(encoding="utf-8") for page in sorted(PAGES.glob("*.md"))}


@pytest.mark.parametrize("name", TEXTS)
def test_the_fields_in_a_page_are_current(name: str) -> None:
    assert TEXTS[name] == written(TEXTS[name]), "make reference"


def test_every_kind_has_its_fields_in_one_page() -> None:
    told = sorted(pair for text in TEXTS.values() for pair in marked(text))
    assert told == sorted((side, kind) for side, kinds in KINDS.items() for kind in kinds)


def test_every_kind_is_in_the_list_of_connectors() -> None:
    for kind in {kind for kinds in KINDS.values() for kind in kinds}:
        assert f"| [`{kind}`](" in TEXTS["README.md"], kind


def test_fields_of_fields_have_their_path_type_default_and_words() -> None:
    lines = reference("source", "kafka").splitlines()
    (protocol,) = (line for line in lines if line.startswith("| `security.protocol` "))
    assert "| `Plaintext`, `Ssl`, `SaslPlaintext`, `SaslSsl` |" in protocol
    assert protocol.count("|") == lines[0].count("|")
    (isolation,) = (line for line in lines if line.startswith("| `isolation` "))
    assert "`ReadCommitted`" in isolation.split("|")[3]
