"""Another number of executors of one task each, with few moves of shards. Pure.

Neighbours: `baselines.static` holds operators at a number by it, `bounds` brings them back to one.
"""

from __future__ import annotations

from penstock.control.decision import Action, AddExecutor, MoveShards, RemoveExecutor
from penstock.control.executor_names import NameExecutor
from penstock.control.snapshot import OperatorSnapshot


def resize(seen: OperatorSnapshot, wanted: int, name_executor: NameExecutor) -> tuple[Action, ...]:
    """What brings `seen` to `wanted` executors with as many shards each, plus or minus one, by few moves.

    Of too many executors those with the fewest shards go. New executors come first in the actions, executors
    that go come last.
    """
    held: dict[str, list[str]] = {executor.name: [] for executor in seen.executors}
    for shard, executor in seen.assignment.items():
        held[executor].append(shard)
    staying = sorted(held, key=lambda name: -len(held[name]))[:wanted]
    fresh: list[str] = []
    while len(staying) + len(fresh) < wanted:
        fresh.append(name_executor(seen.operator, [*held, *fresh]))
    going = [name for name in held if name not in staying]
    share, left_over = divmod(len(seen.assignment), wanted)
    takers = [*staying, *fresh]
    # The fullest ones have the shares that are one larger: fewer shards move.
    quota = {name: share + (number < left_over) for number, name in enumerate(takers)}
    spare = [(shard, name) for name in going for shard in held[name]]
    spare += [(shard, name) for name in staying for shard in held[name][quota[name] :]]
    moves: dict[tuple[str, str], list[str]] = {}
    for name in takers:
        for _ in range(quota[name] - min(len(held.get(name, ())), quota[name])):
            shard, source = spare.pop()
            moves.setdefault((source, name), []).append(shard)
    return (
        *(AddExecutor(name) for name in fresh),
        *(MoveShards(tuple(shards), source, to) for (source, to), shards in moves.items()),
        *(RemoveExecutor(name) for name in going),
    )
