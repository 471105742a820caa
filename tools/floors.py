"""Draws the floors of the house into docs/architecture.md, from what the code imports and contracts allow.

`make floors` writes the picture anew; a test holds that it is current. A room is a folder of one of the four
packages. A module that stands by itself counts as a part of whoever imports it; one that nobody imports is an
entrance, and is drawn. An arrow is left out where others lead the same way.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- drawn by make floors -->\n", "<!-- end of what make floors drew -->\n"

PACKAGES = {
    "penstock_simulation": "simulation",
    "penstock_operator": "operator",
    "penstock_worker": "worker",
    "penstock": "core",
}
"""Each with the folder that it is in."""
REGISTRIES = ("penstock.connectors.registry", "penstock_worker.sinks", "penstock_worker.sources")
"""They know the rooms of kinds, which stand on the folder that a registry lies in."""

Edges = dict[str, set[str]]


def picture() -> str:
    """What stands between the marks in the document."""
    rooms, edges = room_imports(module_imports())
    return f"```mermaid\n{drawn(rooms, without_detours(edges))}```\n\n{inner_floors()}"


def module_imports() -> Edges:
    """Module -> modules of the house that it imports, wherever in its text it does so."""
    paths = {
        module_name(path, ROOT / folder): path
        for package, folder in PACKAGES.items()
        for path in sorted((ROOT / folder / package).rglob("*.py"))
    }
    return {
        name: {to for to in imported(ast.parse(path.read_text(encoding="utf-8")), paths) if to != name}
        for name, path in paths.items()
    }


def module_name(path: Path, folder: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.Module, known: Iterable[str]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names & set(known)


def room_of(module: str, modules: Iterable[str]) -> str:
    """The folder below its package, or the module itself where it stands in the package."""
    name = ".".join(module.split(".")[:2])
    return name if name in modules else module


def room_imports(imports: Mapping[str, set[str]]) -> tuple[list[str], Edges]:
    """The rooms and entrances, and between which of them something is imported."""
    edges: Edges = {}
    for module, names in imports.items():
        room = room_of(module, imports)
        edges.setdefault(room, set()).update({room_of(name, imports) for name in names} - {room})
    wanted = {to for names in edges.values() for to in names}
    is_folder = {".".join(module.split(".")[:2]) for module in imports if module.count(".") > 1}
    lone = [room for room in edges if room not in is_folder and room in wanted]
    for room in lone:
        for name in edges:
            if room in edges[name]:
                edges[name] |= edges[room]
            edges[name].discard(name)
    rooms = [room for room in edges if room not in lone and (edges[room] or room in wanted)]
    return rooms, {room: edges[room] & set(rooms) for room in rooms}


def both_ways(imports: Mapping[str, set[str]], registries: Collection[str] = REGISTRIES) -> list[str]:
    """Of two folders that import from each other, the imports of the one that has fewer, as "a -> b"."""
    between: dict[tuple[str, str], set[str]] = {}
    for module, names in imports.items():
        if module in registries:
            continue
        for name in names:
            # A package stands for itself only where none of its modules is meant.
            if any(other.startswith(f"{name}.") for other in names):
                continue
            ends = folder_of(module, imports), folder_of(name, imports)
            if ends[0] != ends[1]:
                between.setdefault(ends, set()).add(f"{module} -> {name}")
    return sorted(
        found
        for ends, one_way in between.items()
        if (len(one_way), ends) < (len(between.get(ends[::-1], ())), ends[::-1])
        for found in one_way
    )


def folder_of(module: str, modules: Iterable[str]) -> str:
    """Its package, or the module itself where it is one."""
    return module if any(name.startswith(f"{module}.") for name in modules) else module.rpartition(".")[0]


def without_detours(edges: Edges) -> Edges:
    """Only what nothing else leads to. Raises ValueError where imports go in a circle."""
    below: Edges = {}

    def all_below(room: str, above: tuple[str, ...] = ()) -> set[str]:
        if room in above:
            raise ValueError(f"imports in a circle: {' -> '.join((*above, room))}")
        if room not in below:
            below[room] = edges[room].union(*(all_below(to, (*above, room)) for to in edges[room]))
        return below[room]

    lower = {room: all_below(room) for room in edges}
    return {
        room: {to for to in names if not any(to in lower[by] for by in names)}
        for room, names in edges.items()
    }


def drawn(rooms: list[str], edges: Edges) -> str:
    """As Mermaid's flowchart, a frame for each package."""

    def node(room: str) -> str:
        return room.replace(".", "_")

    lines = ["flowchart TB"]
    for package, folder in PACKAGES.items():
        lines.append(f'    subgraph {folder}["{folder}/{package}"]')
        lines += [
            f'        {node(room)}["{room.removeprefix(package + ".")}"]'
            for room in sorted(rooms)
            if room.split(".")[0] == package
        ]
        lines.append("    end")
    lines += [f"    {node(room)} --> {node(to)}" for room in sorted(rooms) for to in sorted(edges[room])]
    return "".join(f"{line}\n" for line in lines)


def inner_floors() -> str:
    """The contracts about layers as a list: what stands on what, from the top."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = []
    for contract in settings["tool"]["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            floors = [floor.split(" | ") for floor in contract["layers"]]
            words = [", ".join(f"`{name.split('.')[-1]}`" for name in floor) for floor in floors]
            lines.append(f"- {contract['name']}: {'; '.join(words)}\n")
    return "".join(lines)


def with_picture(document: str, drawing: str) -> str:
    """Raises ValueError when the document has no marks."""
    before, _, rest = document.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{DOCUMENT.name} needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}{drawing}{END}{after}"


if __name__ == "__main__":
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(with_picture(text, picture()), encoding="utf-8")
