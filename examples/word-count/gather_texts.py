"""Gathers the texts whose words the example counts: documentation that came with installed Python packages.

Licences, read-me files, change logs and package descriptions from this Python's site-packages go into a few
files of about equally many lines in `texts/`, up to a size, so that a paced run reads them all to the
end at about the same time. A second call finds the same texts and writes nothing.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"
FILES = 8
SUFFIXES = (".txt", ".rst", ".md")
NOT_PROSE = ("entry_points.txt", "top_level.txt")
LETTERS_SHARE_MIN = 0.5
"""Below it a file is a table of numbers that happens to be called .txt."""


def find_texts(packages: Path) -> Iterator[bytes]:
    """Every documentation text below `packages`, by path, as UTF-8 that ends with a line's end."""
    for path in sorted(packages.rglob("*")):
        if path.name != "METADATA" and (path.suffix not in SUFFIXES or path.name in NOT_PROSE):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if sum(map(str.isalpha, text)) >= LETTERS_SHARE_MIN * len(text) > 0:
            yield (text.removesuffix("\n") + "\n").encode()


def gather(packages: Path, folder: Path, bytes_max: int) -> tuple[int, int, int]:
    """Make `folder` hold the found texts and nothing else; how many texts, lines and bytes these are."""
    chosen: list[bytes] = []
    total_bytes = 0
    for text in find_texts(packages):
        if total_bytes + len(text) <= bytes_max:
            chosen.append(text)
            total_bytes += len(text)
    chosen.sort(key=lambda text: text.count(b"\n"), reverse=True)
    files: list[list[bytes]] = [[] for _ in range(FILES)]
    lines = [0] * FILES
    for text in chosen:
        shortest = lines.index(min(lines))
        files[shortest].append(text)
        lines[shortest] += text.count(b"\n")

    wanted = {folder / f"documentation-{i + 1}.txt": b"".join(parts) for i, parts in enumerate(files)}
    folder.mkdir(exist_ok=True)
    for path in set(folder.iterdir()) - wanted.keys():
        path.unlink()
    for path, data in wanted.items():
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)
    return len(chosen), sum(lines), total_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Gather the word-count example's texts.")
    parser.add_argument("--bytes-max", type=int, default=8_000_000, help="size of all texts together")
    arguments = parser.parse_args()
    texts, lines, total_bytes = gather(Path(sysconfig.get_path("purelib")), TEXTS, arguments.bytes_max)
    where = TEXTS.relative_to(Path.cwd()) if TEXTS.is_relative_to(Path.cwd()) else TEXTS
    size = f"{lines} lines, {total_bytes / 1e6:.1f} MB"
    print(f"{texts} documentation texts of installed Python packages ({size}) are in {where}")


if __name__ == "__main__":
    main()
