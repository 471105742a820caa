"""`penstock dead-letters`: rows that code has failed on, and what becomes of them.

Neighbours: `asked` says whom it asks, `asking.asked_shards` reads and orders, `asking.shown_letters` has the
words.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from penstock_operator.cli.asked import Where, asked, invalid, where_options
from penstock_operator.cli.faults import EXIT_FAILED
from penstock_operator.cli.options import a_number

if TYPE_CHECKING:
    from penstock.store.dead_letters import Place
    from penstock_operator.asking.asked_shards import AskedShards, AskedTopology, Listed

_topology = click.argument("topology", metavar="TOPOLOGY")
_json = click.option("--json", "as_json", is_flag=True, help="As JSON, one object a letter.")
_operator = click.option("--operator", default="", help="Those of this operator alone.")
_ids = click.argument("ids", metavar="[ID]...", nargs=-1)
_all = click.option("--all", "all_of_them", is_flag=True, help="All that there are.")
_timeout = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, max=86_400),
    default=30.0,
    show_default=True,
    callback=a_number,
    help="Wait so many seconds for a run to do it.",
)


@click.group("dead-letters")
def dead_letters() -> None:
    """Rows that code has failed on, where onError says DeadLetter.

    TOPOLOGY is a topology's name, or its manifest, that `penstock run` runs or has run on this machine; with
    --cluster one in Kubernetes.
    """


@dead_letters.command("list")
@_topology
@_operator
@click.option("--most", type=click.IntRange(min=1), default=1000, show_default=True, help="So many letters.")
@where_options
@_json
def list_letters(topology: str, operator: str, most: int, where: Where, as_json: bool) -> None:
    """List dead letters: their names, what they are about, what was raised."""
    from penstock_operator.asking.shown_letters import letter_json, letter_line

    told = 0
    with asked(topology, where) as found:
        for listed in found.shards.letters(operator, most):
            click.echo(letter_json(listed.place, listed.letter) if as_json else letter_line(listed))
            told += 1
    if not found.shards.are_all:
        click.echo(f"These are the first {told}; there are more (--most, --operator).", err=True)
    elif not told and not as_json:
        click.echo("There is no dead letter.", err=True)
    _tell_sending(found, (operator,) if operator else ())


@dead_letters.command()
@_topology
@click.argument("name", metavar="ID")
@where_options
@_json
def show(topology: str, name: str, where: Where, as_json: bool) -> None:
    """Show a dead letter: its rows, where they came from, the traceback."""
    from penstock_operator.asking.shown_letters import letter_json, letter_text

    place = _named(name)
    with asked(topology, where) as found:
        letter = found.shards.letter(place)
    if letter is None:
        click.echo(f"penstock: there is no dead letter {place}; see 'penstock dead-letters list'", err=True)
        _tell_sending(found, (place.operator,))
        sys.exit(EXIT_FAILED)
    click.echo(letter_json(place, letter) if as_json else letter_text(place, letter))


@dead_letters.command()
@_topology
@_ids
@_operator
@_all
@where_options
@_timeout
def replay(
    topology: str, ids: tuple[str, ...], operator: str, all_of_them: bool, where: Where, timeout_s: float
) -> None:
    """Have dead letters worked on again, each exactly once: one that code takes now is gone with what comes
    of it, one that it fails on again stays.

    The task that owns a letter's shard does it. Where no run goes on, the next one does.
    """
    from penstock.store.letters import REPLAY

    _order(REPLAY, topology, ids, operator, where, timeout_s, all_of_them=all_of_them)


@dead_letters.command()
@_topology
@_ids
@_operator
@_all
@where_options
@_timeout
def drop(
    topology: str, ids: tuple[str, ...], operator: str, all_of_them: bool, where: Where, timeout_s: float
) -> None:
    """Forget dead letters for good."""
    from penstock.store.letters import DROP

    _order(DROP, topology, ids, operator, where, timeout_s, all_of_them=all_of_them)


def _order(
    doing: str,
    topology: str,
    ids: tuple[str, ...],
    operator: str,
    where: Where,
    timeout_s: float,
    *,
    all_of_them: bool,
) -> None:
    from penstock.store.letters import REPLAY
    from penstock_operator.asking.asked_shards import Listed

    if bool(ids) + bool(operator) + all_of_them != 1:
        invalid("give IDs, or --operator, or --all")
    places = [_named(name) for name in ids]
    with asked(topology, where) as found:
        shards = found.shards
        if ids:
            letters = [(place, shards.letter(place)) for place in places]
            missing = [place for place, letter in letters if letter is None]
            known = [
                Listed(place, letter, len(letter.rows)) for place, letter in letters if letter is not None
            ]
        else:
            missing, known = [], list(shards.letters(operator, is_brief=True))
        for one in known:
            shards.order(doing, one.place)
        left = _waited_for(shards, known, timeout_s) if found.goes_on else []
    for place in missing:
        click.echo(f"penstock: there is no dead letter {place}", err=True)
    for place, why in left:
        click.echo(f"penstock: {place} stays: {why}", err=True)
    if missing or not known:
        _tell_sending(found, (operator,) if operator else tuple(place.operator for place in missing))
    done = "worked on again" if doing == REPLAY else "dropped"
    if found.goes_on:
        click.echo(f"{len(known) - len(left)} {done}, {len(left)} stay")
    else:
        click.echo(f"{len(known)} will be {done} {found.who_comes_to_it}")
    if missing or left:
        sys.exit(EXIT_FAILED)


def _tell_sending(found: AskedTopology, about: tuple[str, ...]) -> None:
    """Whose letters are not kept, of these operators (of all, where none is named)."""
    sending = [name for name in found.sending if name in about or not about]
    if sending:
        click.echo(
            f"Dead letters of {', '.join(sending)} go to the sink dead-letters ({found.letters_sink}). The "
            "stores keep those alone that came before it was there, or are too large for it; what is in the "
            "sink is replayed by bringing its records to the source again.",
            err=True,
        )


def _waited_for(shards: AskedShards, ordered: list[Listed], timeout_s: float) -> list[tuple[Place, str]]:
    """Those that stay when the time is over, each with why."""
    left = []
    deadline_s = time.monotonic() + timeout_s
    for one in ordered:
        try:
            waits_s = max(0.0, deadline_s - time.monotonic())
            letter = shards.outcome(one.place, one.letter.attempts, waits_s)
        except TimeoutError:
            left.append((one.place, f"the run has not come to it within {timeout_s:g} s; it will"))
            continue
        if letter is not None:
            left.append((one.place, letter.error))
    return left


def _named(name: str) -> Place:
    from penstock.store.dead_letters import LetterUnknown, place_of

    try:
        return place_of(name)
    except LetterUnknown as error:
        invalid(str(error))
