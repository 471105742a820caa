"""`python -m bench.transform_latency`: how old rows are behind a `transform`, beside `filter` and `select`.

One filter and projection at 1 000 records a second, from the source to the sink's file: by a Spark job for
each micro-batch, without `every` and with 200 ms, and in the resident task. BENCH_SECONDS is what is measured
of each.
"""

from __future__ import annotations

import json

from bench import cpu, machine, penstock_side
from bench.screen import Screen, scratch, seconds_per_figure
from bench.throughput_forms import SPARK_WARMUP_S, STEPS

RATE_PER_S = 1000.0
SECONDS = 20.0
FORMS = {
    "transform": STEPS["transform"],
    "transform, every 200ms": (*STEPS["transform"], "kept.every=200ms"),
    "filter and select": STEPS["step, filter and select"],
}


def main() -> None:
    """Measure, and print the result as the last line."""
    cpu.adopt_orphans()
    seconds = seconds_per_figure(SECONDS)
    screen = Screen(len(FORMS))
    found: dict[str, dict[str, float]] = {}
    for name, sets in FORMS.items():
        with screen.step(name), scratch("transform") as folder:
            run = penstock_side.measure(
                RATE_PER_S, "Process", 1, SPARK_WARMUP_S, seconds, folder, screen.tell,
                topology="filtering", code="filtering_keys.py", sets=sets, keyed=False,
            )  # fmt: skip
        found[name] = {
            f"p{share}_ms": round((run.rows.quantile_us(share / 100) or 0) / 1000, 1) for share in (50, 99)
        }
        found[name]["cores"] = round(run.cores_used, 2)
    print(
        json.dumps(
            {"bench": "transform_latency", **found, "seconds": seconds, "machine": machine.description()}
        )
    )


if __name__ == "__main__":
    main()
