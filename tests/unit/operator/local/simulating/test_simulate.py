"""`penstock simulate`: from a topology, an SLA and a trace to what it would cost; and why not."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from penstock.api.compile import compile_topology
from penstock.api.latency_sla import LatencySLA
from penstock.api.topology import Topology
from penstock.dataflow.rate_trace import parse_rate_trace
from penstock.sla.promise import promise_of
from penstock_operator.cli.faults import EXIT_INVALID
from penstock_operator.cli.main import main
from penstock_operator.local.simulating.answer import as_json, draw, show
from penstock_operator.local.simulating.request import read_request
from penstock_operator.local.simulating.simulate import (
    CannotSimulateError,
    SimulationRequest,
    simulate,
    zipf_services_us,
)


def request_for(
    policy: str = "StreamSwitch", trace: str = "0,200\n10,900\n20,200", **sla: object
) -> SimulationRequest:
    """A zipf source, a calculator with 16 shards behind it, a totals operator behind that."""
    topology = Topology.model_validate(
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "t"},
            "spec": {
                "code": {"module": "m"},
                "operators": [
                    {
                        "name": "rows",
                        "source": {"zipf": {"keys": 1000, "exponent": 0.5, "serviceTime": "4ms"}},
                    },
                    {
                        "name": "calculate",
                        "inputs": ["rows"],
                        "keyBy": ["key"],
                        "processor": "m:C",
                        "outputSchema": "key long, value long",
                        "shards": 16,
                        "tasks": {"min": 1, "max": 8, "initial": 2},
                    },
                    {
                        "name": "total",
                        "inputs": ["calculate"],
                        "keyBy": ["key"],
                        "processor": "m:T",
                        "outputSchema": "key long, value long",
                        "shards": 4,
                        "tasks": {"min": 1, "max": 4, "initial": 1},
                    },
                    {"name": "out", "inputs": ["total"], "sink": {"console": {}}},
                ],
            },
        }
    )
    promise = LatencySLA.model_validate(
        {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": "LatencySLA",
            "metadata": {"name": "fast"},
            "spec": {"topology": "t", "operator": "calculate", "latency": "250ms", "policy": policy, **sla},
        }
    )
    plan = compile_topology(topology)
    return SimulationRequest(
        plan=plan,
        promise=promise_of(promise, topology, plan),
        trace=parse_rate_trace(trace),
        service_us=zipf_services_us(plan),
        rows_per_row={},
        length_us=40_000_000,
    )


@pytest.mark.parametrize("policy", ["StreamSwitch", "Elasticutor", "Hybrid"])
def test_the_policy_is_put_beside_fixed_numbers_of_tasks(policy: str) -> None:
    answer = simulate(request_for(policy))
    chosen, at_mean, at_most = answer.candidates
    assert chosen.name == policy
    # 900 rows of 4 ms a second need 3.6 tasks, 200 of them less than one; on average 1.5.
    assert answer.work_tasks == pytest.approx(1.5, rel=0.05)
    assert answer.work_tasks < chosen.run.mean_tasks < chosen.tasks_max
    assert chosen.changes > 0
    assert chosen.tasks_max > 3
    assert at_mean.changes == at_most.changes == 0
    assert at_most.run.mean_tasks == chosen.tasks_max
    assert at_most.success > 0.99


def test_only_what_is_in_scope_or_upstream_of_it_is_simulated() -> None:
    assert list(simulate(request_for()).candidates[0].run.operators) == ["calculate"]
    request = request_for(operator="total")
    with pytest.raises(CannotSimulateError, match="--service total=2ms"):
        simulate(request)
    answer = simulate(
        replace(request, service_us={**request.service_us, "total": 500.0}, rows_per_row={"total": 2.0})
    )
    operators = answer.candidates[0].run.operators
    assert operators["total"].arrived.sum() == pytest.approx(2 * operators["calculate"].completed.sum())


def test_end_to_end_the_path_is_judged() -> None:
    request = request_for(operator=None, latency="1s", trace="0,100")
    answer = simulate(replace(request, service_us={"calculate": 4_000.0, "total": 500.0}))
    assert answer.candidates[0].run.path_success == answer.candidates[0].success > 0.9


def test_a_load_that_no_number_of_tasks_serves_is_told() -> None:
    answer = simulate(request_for(trace="0,5000"))
    assert "the most allowed" in answer.infeasible
    assert answer.candidates[0].success < 0.5


def test_the_same_seed_gives_the_same_answer() -> None:
    assert as_json(simulate(request_for())) == as_json(simulate(request_for()))


def test_the_answer_is_a_table_lines_and_a_picture(tmp_path: Path) -> None:
    answer = simulate(request_for())
    text = io.StringIO()
    show(answer, Console(file=text, width=100))
    shown = text.getvalue()
    for part in (
        "fast: calculate, 250 ms over 1.00 s, 0:40 of load",
        "StreamSwitch",
        "fixed at its mean",
        "rows/s",
    ):
        assert part in shown
    assert draw(tmp_path / "p.png", answer)
    assert (tmp_path / "p.png").read_bytes()[1:4] == b"PNG"


FIGURE = re.compile(r"[0-9.:]+( ?%| ms| s)?")


def shown_in(width: int, *, terminal: bool) -> str:
    text = io.StringIO()
    show(simulate(request_for()), Console(file=text, width=width, force_terminal=terminal, color_system=None))
    return text.getvalue()


def figures_of(shown: str) -> set[str]:
    """The figures in the table's rows."""
    rows = [line for line in shown.splitlines() if line.startswith(("StreamSwitch", "fixed at"))]
    assert len(rows) == 3
    return {figure.group() for row in rows for figure in FIGURE.finditer(row)}


def test_piped_every_figure_is_whole_whatever_width_is_said() -> None:
    narrow = shown_in(40, terminal=False)
    assert "…" not in narrow
    assert figures_of(narrow) == figures_of(shown_in(300, terminal=False))


@pytest.mark.parametrize(
    ("width", "left_out"), [(80, ""), (68, "changes"), (60, "mean, changes"), (50, "worst, mean, changes")]
)
def test_on_a_narrow_terminal_columns_give_way_and_no_figure_is_cut(width: int, left_out: str) -> None:
    shown = shown_in(width, terminal=True)
    assert "…" not in shown
    assert figures_of(shown) <= figures_of(shown_in(300, terminal=True))
    assert ("Not shown in" in shown) == bool(left_out)
    assert f"columns: {left_out}" in shown or not left_out


def test_values_that_are_none_are_refused_with_their_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for()
    for service, factors, message in (
        ({"calculate": 1.0, "z": 1.0}, {}, "--service names z; operators that are simulated are calculate"),
        ({"calculate": 1.0}, {"y": 1.0}, "--rows names y"),
    ):
        with pytest.raises(CannotSimulateError, match=message):
            simulate(replace(request, service_us=service, rows_per_row=factors))

    class Checked:
        plan = request.plan
        promises = (request.promise,)

    monkeypatch.setattr("penstock_operator.local.simulating.request.check_manifest", lambda *_: Checked)
    trace = tmp_path / "rates.csv"
    trace.write_text("0,10\n")
    for services, factors_, message in (
        (("calculate",), (), "--service calculate: give an operator and a value"),
        (("=2ms",), (), "--service =2ms: give an operator and a value"),
        (("calculate=fast",), (), "--service calculate=fast"),
        ((), ("calculate=-1",), "a value above 0"),
        ((), ("calculate=x",), "--rows calculate=x: 'x' is not a number such as 2"),
    ):
        with pytest.raises(CannotSimulateError, match=message):
            read_request(Path("t"), Path("s"), trace, services, factors_, None, None, 0)
    with pytest.raises(CannotSimulateError, match="no such file"):
        read_request(Path("t"), Path("s"), tmp_path / "none.csv", (), (), None, None, 0)
    found = read_request(Path("t"), Path("s"), trace, ("calculate=2ms",), ("calculate=3",), 1.5, 5.0, 7)
    assert (found.service_us, found.rows_per_row) == ({"calculate": 2_000.0}, {"calculate": 3.0})
    assert (found.skew, found.length_us, found.seed) == (1.5, 5_000_000, 7)


def test_a_manifest_that_is_not_there_ends_with_its_fault(tmp_path: Path) -> None:
    shown = CliRunner().invoke(
        main,
        ["simulate", str(tmp_path / "t.yaml"), str(tmp_path / "s.yaml"), "--trace", str(tmp_path / "r.csv")],
    )
    assert shown.exit_code == EXIT_INVALID
    assert "t.yaml" in shown.output
