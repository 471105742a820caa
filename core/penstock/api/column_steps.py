"""`filter` and `select` of an operator as the plan's `ColumnStep`, and which columns come out.

Works on the plain document, as `graph` does: what a field's own fault leaves unknown is passed over.
Neighbours: `graph` calls this, `dataflow.expressions` reads the texts.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.api.operators import Graph, Operator
from penstock.dataflow.expression_tree import InvalidExpression
from penstock.dataflow.expressions.column_step import all_columns, read_filter, read_select
from penstock.dataflow.schema import Schema
from penstock.manifest.faults import Fault


def column_step_output(operator: Operator, graph: Graph) -> Schema | None:
    """The columns that come out of the step `operator`; `graph.column_steps` has it then. None where that is
    not clear, by a fault."""
    name = str(operator.name)
    given = graph.inputs.get(name)
    if given is None:
        return None
    step = all_columns(given)
    condition, columns = operator.body.get("filter"), operator.body.get("select")
    before = len(graph.faults)
    if isinstance(columns, list | tuple) and columns and all(isinstance(text, str) for text in columns):
        try:
            step = read_select(columns, given)
        except InvalidExpression as error:
            graph.faults.append(Fault(f"{operator.path}.select", str(error)))
    elif columns is not None:
        return None
    if isinstance(condition, str) and condition:
        try:
            step = replace(step, kept=read_filter(condition, given), filter_text=condition)
        except InvalidExpression as error:
            graph.faults.append(Fault(f"{operator.path}.filter", f"{condition!r}: {error}"))
    elif condition is not None:
        return None
    if len(graph.faults) > before:
        return None
    graph.column_steps[name] = step
    return step.output
