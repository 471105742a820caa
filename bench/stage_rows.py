"""What a stage costs on rows while nothing fails, with and without an `onError`: CPU time, best of many.

    PYTHONPATH=tests .venv/bin/python -m bench.stage_rows

A keyed stage works on batches whose keys have one row, some or many; a step on rows of two words. Both are
the product's, with state and outputs on the store's twin, without a store's or a wire's time.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from penstock.api.compile import compile_topology
from penstock.api.load import load_topology
from penstock.store.codec import encode_batch
from penstock.store.ownership import OwnedShard
from penstock.store.port import Bounds, Claim, Claimed, Entry, FetchedShard, Owner
from penstock.store.port import Commit as StoreCommit
from penstock_worker.outputs.output_batch import OutputBatch
from penstock_worker.stages.keyed_stage import KeyedStage
from penstock_worker.stages.letter_box import LetterBox
from penstock_worker.stages.steps import FanoutRunner
from penstock_worker.stages.work import Work
from penstock_worker.state.cache import StateCache
from penstock_worker.user_code.arguments import processor_maker
from penstock_worker.user_code.running import ProcessorRunner
from penstock_worker.values.held import Held
from scenes.task_scene import INCARNATION, Scene

ROWS = 256
BATCHES = 400
SHAPES = ((256, 1), (32, 8), (1, 256))
"""Keys, and rows of each."""
CHANGES = {
    'processor: "loop_code:Count"': 'processor: "loop_code:Count"\n    onError: {policy: DeadLetter}',
    'map: "loop_code:split"': 'map: "loop_code:split"\n    onError: {policy: DeadLetter}',
}


class Bench:
    """One topology, in a folder of its own."""

    def __init__(self, folder: Path, *, spares: bool) -> None:
        self._folder = folder
        self._scene = Scene(folder)
        if spares:
            path = folder / "topology.yaml"
            text = path.read_text()
            for before, after in CHANGES.items():
                text = text.replace(before, after)
            path.write_text(text)
            self._scene.plan = compile_topology(load_topology(path))
        self._scene.publish(["lines/a.txt"])

    def keyed_ns(self, keys: int, rows_each: int) -> float:
        """A row, of a keyed stage."""
        scene, stage = self._scene, self._scene.plan.stage("count")
        maker = processor_maker(stage.head.target, {}, self._folder)
        runner = ProcessorRunner(maker, stage.head.input, (0,), stage.out.schema, "count")
        cache = StateCache(runner.variables, runner.key_types, scene.store.call)
        fanout = FanoutRunner(stage.out, self._folder)
        letters = LetterBox(stage, scene.store.call)
        work_on = KeyedStage(
            "count", stage.head, runner, cache, fanout, Bounds(), scene.clock,
            on_error=stage.on_error, letters=letters,
        )  # fmt: skip
        claimed = scene.store.call(Claim("count/0", Owner("count-w1", INCARNATION, "count.ready"), 1))
        assert isinstance(claimed, Claimed)
        owned = OwnedShard("count/0", claimed)
        work_on.adopt(owned)
        payload = encode_batch([1] * ROWS, [(f"w{key}",) for _ in range(rows_each) for key in range(keys)])
        best_ns = float("inf")
        for _ in range(BATCHES):
            entry = Entry(owned.offset + 1, 1, payload)
            fetched = FetchedShard("count/0", owned.epoch, owned.offset, (entry,))
            began_ns = time.process_time_ns()
            load = work_on.wanted(owned, fetched)
            took_ns = time.process_time_ns() - began_ns
            if load is not None:
                work_on.loaded(owned, load, scene.store.call(load))
            began_ns = time.process_time_ns()
            worked = work_on.work(owned, fetched)
            took_ns += time.process_time_ns() - began_ns
            assert isinstance(worked, Work)
            assert isinstance(worked.commit, StoreCommit)
            work_on.settled(owned, worked)
            best_ns = min(best_ns, took_ns)
        return best_ns / ROWS

    def step_ns(self) -> float:
        """A row, of a step."""
        fanout = FanoutRunner(self._scene.plan.stage("lines").out, self._folder)
        best_ns = float("inf")
        for _ in range(BATCHES):
            outputs = OutputBatch(Bounds(), "lines/a.txt", Held(Bounds(), alone=False))
            began_ns = time.process_time_ns()
            fanout.feed([("a b",)] * ROWS, [1] * ROWS, outputs)
            best_ns = min(best_ns, time.process_time_ns() - began_ns)
        return best_ns / ROWS


def main() -> None:
    for spares in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), spares=spares)
            said = "DeadLetter" if spares else "Fail"
            for keys, rows_each in SHAPES:
                found_ns = bench.keyed_ns(keys, rows_each)
                print(f"{said:10}  keyed, {keys:3} keys of {rows_each:3} rows: {found_ns:6.0f} ns a row")
            print(f"{said:10}  a step: {bench.step_ns():34.0f} ns a row")


if __name__ == "__main__":
    main()
