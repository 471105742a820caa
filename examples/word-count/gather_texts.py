"""Gathers the texts whose words the example counts: documentation that came with installed Python packages.

Copies licences, read-me files, change logs and package descriptions from this Python's site-packages
into `texts/`, each under one flat name, up to a size. A second call finds the same files and writes nothing.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"
SUFFIXES = (".txt", ".rst", ".md")
NOT_PROSE = ("entry_points.txt", "top_level.txt")
LETTERS_SHARE_MIN = 0.5
"""Below it a file is a table of numbers that happens to be called .txt."""


def find_texts(packages: Path) -> Iterator[tuple[str, str]]:
    """(flat name, text) of every documentation text below `packages`, by path."""
    for path in sorted(packages.rglob("*")):
        if path.name != "METADATA" and (path.suffix not in SUFFIXES or path.name in NOT_PROSE):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if sum(map(str.isalpha, text)) >= LETTERS_SHARE_MIN * len(text) > 0:
            name = "__".join(path.relative_to(packages).parts)
            yield name if name.endswith(".txt") else f"{name}.txt", text


def gather(packages: Path, texts: Path, bytes_max: int) -> tuple[int, int]:
    """Make `texts` hold the found texts and no other file; (files, bytes) that are there now."""
    chosen: dict[Path, bytes] = {}
    total_bytes = 0
    for name, text in find_texts(packages):
        data = text.encode()
        if total_bytes + len(data) <= bytes_max:
            chosen[texts / name] = data
            total_bytes += len(data)
    texts.mkdir(exist_ok=True)
    for path in set(texts.iterdir()) - chosen.keys():
        path.unlink()
    for path, data in chosen.items():
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return len(chosen), total_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Gather the word-count example's texts.")
    parser.add_argument("--bytes-max", type=int, default=8_000_000, help="size of all texts together")
    arguments = parser.parse_args()
    files, total_bytes = gather(Path(sysconfig.get_path("purelib")), TEXTS, arguments.bytes_max)
    print(
        f"{files} documentation texts of installed Python packages, {total_bytes / 1e6:.1f} MB, "
        f"are in {TEXTS.relative_to(Path.cwd()) if TEXTS.is_relative_to(Path.cwd()) else TEXTS}"
    )


if __name__ == "__main__":
    main()
