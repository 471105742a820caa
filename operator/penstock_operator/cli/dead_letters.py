"""`penstock dead-letters`: rows that code has failed on, and what becomes of them.

Neighbours: `local.kept.dead_letters` reads and orders, `local.showing.letters` has the words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.errors import PenstockError
from penstock_operator.cli.faults import EXIT_FAILED, EXIT_INVALID, cannot_run

if TYPE_CHECKING:
    from penstock.store.letters import Letter
    from penstock_operator.local.kept.dead_letters import DeadLetters, Place

_topology = click.argument("topology", metavar="TOPOLOGY")
_state_dir = click.option(
    "--state-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the run keeps its state.  [default: .penstock/NAME]",
)
_json = click.option("--json", "as_json", is_flag=True, help="As JSON, one object a letter.")
_operator = click.option("--operator", default="", help="Those of this operator alone.")
_ids = click.argument("ids", metavar="[ID]...", nargs=-1)
_all = click.option("--all", "all_of_them", is_flag=True, help="All that there are.")
_timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Wait so many seconds for a run to do it.",
)


@click.group("dead-letters")
def dead_letters() -> None:
    """Rows that code has failed on, where onError says DeadLetter.

    TOPOLOGY is a topology's name, or its manifest, that `penstock run` runs or has run on this machine.
    """


@dead_letters.command("list")
@_topology
@_operator
@_state_dir
@_json
def list_letters(topology: str, operator: str, state_dir: Path | None, as_json: bool) -> None:
    """List dead letters: their names, what they are about, what was raised."""
    from penstock_operator.local.showing.letters import letter_json, letter_lines

    with _letters(topology, state_dir) as (letters, _):
        found = list(letters.all(operator))
    if as_json:
        for place, letter in found:
            click.echo(letter_json(place, letter))
    elif found:
        click.echo(letter_lines(found))
    else:
        click.echo("There is no dead letter.", err=True)


@dead_letters.command()
@_topology
@click.argument("name", metavar="ID")
@_state_dir
@_json
def show(topology: str, name: str, state_dir: Path | None, as_json: bool) -> None:
    """Show a dead letter: its rows, where they came from, the traceback."""
    from penstock_operator.local.showing.letters import letter_json, letter_text

    place = _named(name)
    with _letters(topology, state_dir) as (letters, _):
        letter = letters.one(place)
    if letter is None:
        click.echo(f"penstock: there is no dead letter {place}; see 'penstock dead-letters list'", err=True)
        sys.exit(EXIT_FAILED)
    click.echo(letter_json(place, letter) if as_json else letter_text(place, letter))


@dead_letters.command()
@_topology
@_ids
@_operator
@_all
@_state_dir
@_timeout
def replay(
    topology: str,
    ids: tuple[str, ...],
    operator: str,
    all_of_them: bool,
    state_dir: Path | None,
    timeout_s: float,
) -> None:
    """Have dead letters worked on again, each exactly once: one that code takes now is gone with what comes
    of it, one that it fails on again stays.

    The task that owns a letter's shard does it. Where no run goes on, the next one does.
    """
    from penstock.store.letters import REPLAY

    _order(REPLAY, topology, ids, operator, state_dir, timeout_s, all_of_them=all_of_them)


@dead_letters.command()
@_topology
@_ids
@_operator
@_all
@_state_dir
@_timeout
def drop(
    topology: str,
    ids: tuple[str, ...],
    operator: str,
    all_of_them: bool,
    state_dir: Path | None,
    timeout_s: float,
) -> None:
    """Forget dead letters for good."""
    from penstock.store.letters import DROP

    _order(DROP, topology, ids, operator, state_dir, timeout_s, all_of_them=all_of_them)


def _order(
    doing: str,
    topology: str,
    ids: tuple[str, ...],
    operator: str,
    state_dir: Path | None,
    timeout_s: float,
    *,
    all_of_them: bool,
) -> None:
    if bool(ids) + bool(operator) + all_of_them != 1:
        click.echo("penstock: give IDs, or --operator, or --all", err=True)
        sys.exit(EXIT_INVALID)
    places = [_named(name) for name in ids]
    with _letters(topology, state_dir) as (letters, is_running):
        chosen = [(place, letters.one(place)) for place in places] if ids else list(letters.all(operator))
        missing = [place for place, letter in chosen if letter is None]
        known = [(place, letter) for place, letter in chosen if letter is not None]
        for place, _ in known:
            letters.order(doing, place)
        left = _waited_for(letters, known, timeout_s) if is_running else []
    for place in missing:
        click.echo(f"penstock: there is no dead letter {place}", err=True)
    for place, why in left:
        click.echo(f"penstock: {place} stays: {why}", err=True)
    done = "worked on again" if doing == "replay" else "dropped"
    if is_running:
        click.echo(f"{len(known) - len(left)} {done}, {len(left)} stay")
    else:
        click.echo(f"{len(known)} will be {done} by the next run")
    if missing or left:
        sys.exit(EXIT_FAILED)


def _waited_for(
    letters: DeadLetters, ordered: list[tuple[Place, Letter]], timeout_s: float
) -> list[tuple[Place, str]]:
    """Those that stay, each with why."""
    left = []
    for place, before in ordered:
        try:
            letter = letters.outcome(place, before, timeout_s)
        except TimeoutError:
            left.append((place, f"the run has not come to it within {timeout_s:g} s; it will"))
            continue
        if letter is not None:
            left.append((place, letter.error))
    return left


def _named(name: str) -> Place:
    from penstock_operator.local.kept.dead_letters import LetterUnknown, place_of

    try:
        return place_of(name)
    except LetterUnknown as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)


@contextmanager
def _letters(topology: str, state_dir: Path | None) -> Iterator[tuple[DeadLetters, bool]]:
    """The letters of a topology, and whether it runs."""
    from penstock_operator.local.kept.dead_letters import DeadLetters
    from penstock_operator.local.opened_store import opened_store
    from penstock_operator.local.showing.explain import topology_name

    try:
        name = topology_name(topology)
    except PenstockError as error:
        click.echo(f"penstock: {error}", err=True)
        sys.exit(EXIT_INVALID)
    folder = state_dir if state_dir is not None else Path(".penstock") / name
    try:
        with opened_store(folder) as opened:
            yield DeadLetters(opened.store, opened.shards), opened.is_running
    except PenstockError as error:
        cannot_run(error)
