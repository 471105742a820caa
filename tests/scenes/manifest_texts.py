"""Manifests as texts: of a word count, which tests change and then have read, and of a count with letters."""

from __future__ import annotations

from typing import Any

from penstock.api.load import parse_manifest
from penstock.manifest.faults import InvalidManifest

WORD_COUNT = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: word-count}
spec:
  code: {module: word_count}
  durability: Process
  workers: {min: 1, max: 4, warm: 0, cores: {min: 1, max: 4}, memory: 2Gi, isolation: Topology}
  operators:
  - name: lines
    source: {files: {glob: "texts/**/*.txt", format: text}}
  - name: words
    inputs: [lines]
    map: word_count:split
    outputSchema: "word string"
  - name: count
    inputs: [words]
    keyBy: [word]
    processor: word_count:Count
    outputSchema: "word string, total long"
    shards: 64
    tasks: {min: 1, max: 8, initial: 2}
  - name: totals
    inputs: [count]
    sink: {files: {path: out/, format: jsonl}}
"""

COUNTING_WITH_LETTERS = """
apiVersion: penstock.dev/v1alpha1
kind: Topology
metadata: {name: counting}
spec:
  code: {module: code}
  operators:
  - name: lines
    source: {files: {glob: '*.txt', format: text}}
  - name: count
    inputs: [lines]
    keyBy: [value]
    processor: "code:Count"
    outputSchema: "value string, total long"
    shards: 2
    onError: {policy: DeadLetter}
  - name: totals
    inputs: [count]
    sink: {console: {}}
"""


def changed(*replacements: tuple[str, str]) -> str:
    text = WORD_COUNT
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


def faults_of(text: str, *overrides: str, **options: Any) -> list[str]:
    try:
        parse_manifest(text, overrides, **options)
    except InvalidManifest as error:
        return [str(fault) for fault in error.faults]
    return []
