"""Keys that a routing table takes to another shard, and rows that their code has failed on: what waits goes
along, and dead letters are worked on again where their key is. On the store's twin."""

from __future__ import annotations

from pathlib import Path

from penstock.dataflow.routing_table import KeyMove, RoutingTable, bare_table, encode_table, moved_count
from penstock.dataflow.wire_keys import wire_router
from penstock.store.codec import decode_counts, pack
from penstock.store.fragments import fragments_of
from penstock.store.letters import DROP, REPLAY, ROWS, Letter, encode_carried
from penstock.store.port import Answer, Append, Measure, PutTable
from penstock_worker.task.loop import TaskLoop
from scenes.letter_scene import LetterScene
from unit.worker.task.test_dead_letters import BOTH, begun, last_totals
from unit.worker.task.test_retries import FAILS_FOR, held_rows

SOURCE = "lines/a.txt"
KEY = pack(("poison",))
HOME = wire_router(("string",), 2)(("poison",))


class Moved:
    """Tasks of both operators, while a table takes `poison` to the other shard. `version` is the newest."""

    def __init__(self, scene: LetterScene, source: str) -> None:
        self.scene = scene
        self.version = 0
        self.at = int(source.rpartition("/")[2])
        self.put_table()
        self.begin()

    @property
    def shard(self) -> str:
        """Where the key is."""
        return f"count/{self.at}"

    def put_table(self) -> None:
        """The next table is in the store."""
        self.version += 1
        before, self.at = self.at, 1 - self.at
        table = RoutingTable(self.version, ((KEY, self.at),), (KeyMove(KEY, before, self.at),), (SOURCE,))
        self.scene.store.call(PutTable("count", self.version, encode_table(table)))

    def go_home(self) -> None:
        """The empty table is carried out, and tasks begin beside the bare one behind it."""
        self.version += 1
        before, self.at = self.at, 1 - self.at
        empty = RoutingTable(self.version, (), (KeyMove(KEY, before, self.at),), (SOURCE,))
        self.scene.store.call(PutTable("count", self.version, encode_table(empty)))
        self.begin()
        self.carry_out()
        self.scene.store.call(PutTable("count", self.version + 1, encode_table(bare_table(empty))))
        self.begin()

    def begin(self) -> None:
        """Tasks that begin now, with the code that there is."""
        number = f"{self.version}-{self.scene.clock.now_us()}"
        self._lines: TaskLoop = self.scene.task("lines", [SOURCE], ready=f"lines.{number}")
        self._count: TaskLoop = self.scene.task("count", BOTH, ready=f"count.{number}")

    def turns(self, count: int = 30) -> None:
        for _ in range(count):
            self.scene.clock.sleep_us(20_000)
            self.scene.turns(self._lines, 1)
            self.scene.turns(self._count, 1)

    def carry_out(self) -> None:
        self.turns()
        for one in self.scene.store.call(Measure(BOTH)):
            assert one is not None
            assert decode_counts(one.counts).get(moved_count("count")) == self.version


def test_a_letter_whose_key_has_moved_is_worked_on_again_where_the_key_is(tmp_path: Path) -> None:
    scene = LetterScene(tmp_path, "if key[0] == 'poison' and total == 2: raise ValueError('two')")
    begun(scene, "poison ash\n")
    scene.turns(scene.task("count", BOTH))
    assert scene.letters("count") == {}
    begun_again(scene, "poison\n")
    ((shard, of),) = scene.letters("count")
    scene.set_code()
    moved = Moved(scene, shard)
    moved.carry_out()
    assert list(scene.letters("count")) == [(shard, of)], "it stays where people know it"
    scene.order(REPLAY, "count", shard, of)
    moved.turns()
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"poison": 2, "ash": 1}


def begun_again(scene: LetterScene, lines: str) -> None:
    """More lines, and the tasks that work them."""
    path = scene.folder / "a.txt"
    path.write_text(path.read_text() + lines)
    scene.clock.sleep_us(2_000_000)
    number = scene.clock.now_us()
    lines_task = scene.task("lines", [SOURCE], ready=f"lines.{number}")
    count_task = scene.task("count", BOTH, ready=f"count.{number}")
    for _ in range(12):
        scene.turns(lines_task, 1)
        scene.turns(count_task, 1)


def test_a_letter_is_worked_on_again_where_its_key_is_when_nobody_goes_by_tables_any_more(
    tmp_path: Path,
) -> None:
    scene = LetterScene(tmp_path, "if key[0] == 'poison' and total == 2: raise ValueError('two')")
    begun(scene, "poison ash\n")
    scene.turns(scene.task("count", BOTH))
    moved = Moved(scene, f"count/{HOME}")
    moved.carry_out()
    begun_again(scene, "poison\n")
    ((shard, of),) = scene.letters("count")
    assert shard == moved.shard, "it is written where the key is away"
    scene.set_code()
    moved.go_home()
    scene.order(REPLAY, "count", shard, of)
    moved.turns()
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"poison": 2, "ash": 1}


def test_a_letter_that_comes_in_pieces_when_nobody_goes_by_tables_any_more_is_worked_on(
    tmp_path: Path,
) -> None:
    scene = LetterScene(tmp_path, "pass")
    begun(scene, "poison ash\n")
    task = scene.task("count", BOTH)
    scene.turns(task)
    carried = encode_carried("count", Letter(ROWS, ["poison"], [["poison"]], [1], "", 0, ""))
    away = f"count/{1 - HOME}"
    pieces = fragments_of(away, carried, 50)
    assert len(pieces) > 1
    for number, piece in enumerate(pieces, 1):
        call = Append(away, f"count/{HOME}", number, piece, 0, scene.clock.now_us())
        assert scene.store.call(call) is Answer.OK
    scene.turns(task)
    assert scene.waiting() == 0
    assert last_totals(scene) == {"poison": 2, "ash": 1}


def test_a_letter_that_fails_again_where_its_key_is_stays_there(tmp_path: Path) -> None:
    scene = LetterScene(tmp_path)
    begun(scene, "poison ash\n")
    scene.turns(scene.task("count", BOTH))
    ((shard, of),) = scene.letters("count")
    moved = Moved(scene, shard)
    moved.carry_out()
    scene.order(REPLAY, "count", shard, of)
    moved.turns()
    (((where, other), letter),) = scene.letters("count").items()
    assert where == moved.shard
    assert letter.attempts == 2
    assert letter.rows == [["poison"]]
    scene.order(DROP, "count", where, other)
    moved.turns()
    assert scene.letters("count") == {}


def test_an_order_that_meets_no_table_is_carried_out_where_it_is(tmp_path: Path) -> None:
    scene = LetterScene(tmp_path)
    begun(scene, "poison ash\n")
    scene.turns(scene.task("count", BOTH))
    ((shard, of),) = scene.letters("count")
    moved = Moved(scene, shard)
    moved.carry_out()
    scene.order(DROP, "count", shard, of)
    moved.turns()
    assert scene.letters("count") == {}
    assert last_totals(scene) == {"ash": 1}


def test_rows_that_wait_to_be_tried_again_go_with_their_key(tmp_path: Path) -> None:
    scene = LetterScene(tmp_path, FAILS_FOR.format(1_002_000), "{policy: Retry, attempts: 9, backoff: 200ms}")
    begun(scene, "poison ash poison\n")
    scene.turns(scene.task("count", BOTH), 4)
    assert held_rows(scene) == 2
    counters = dict(zip(BOTH, scene.store.call(Measure(BOTH)), strict=True))
    (shard,) = [
        name for name, one in counters.items() if one and decode_counts(one.counts).get("count/held", 0)
    ]
    moved = Moved(scene, shard)
    moved.carry_out()
    after = dict(zip(BOTH, scene.store.call(Measure(BOTH)), strict=True))[moved.shard]
    assert after is not None
    assert decode_counts(after.counts)["count/held"] == 2
    moved.turns(120)
    assert held_rows(scene) == 0
    assert last_totals(scene) == {"poison": 2, "ash": 1}
