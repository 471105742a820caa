"""The function of a `transform`: of a DataFrame, which gives one, as Spark's `DataFrame.transform` takes it.

It is called in the main process, which is Spark's driver, on a DataFrame of one micro-batch; what it gives is
worked out there by a Spark job. Neighbour: `spark.batch_calls` calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from penstock.dataflow.plan import Transform
from penstock.dataflow.schema import Schema
from penstock.errors import PermanentError
from penstock_worker.user_code.arguments import StepKind, decoded, step_function
from penstock_worker.user_code.running import UserCodeError, UserCodeMissing, raised
from penstock_worker.values.rows import RowMismatch
from penstock_worker.values.spark_types import struct_type
from penstock_worker.values.wire_values import shown

TRANSFORM = StepKind("transform", "df", "a transform takes a DataFrame and returns one")


class TransformCode:
    """The code of the operator `operator`; it is loaded with the first call."""

    def __init__(self, operator: str, transform: Transform, output: Schema, base_dir: Path) -> None:
        self._operator = operator
        self._transform = transform
        self._output = output
        self._base_dir = base_dir
        self._function: Callable[[Any], Any] | None = None

    def call(self, frame: DataFrame, number: int, rows: int) -> Any:
        """What comes of a batch, as an Arrow table with the columns of the output schema.

        Raises UserCodeError for what the function or its job raises, which may be the batch's fault;
        UserCodeMissing, and PermanentError where what it returns can be right for no batch.
        """
        target = self._transform.target
        function = self._function
        if function is None:
            try:
                arguments = decoded(self._transform.arguments)
                function = self._function = step_function(TRANSFORM, target, arguments, self._base_dir)
            except UserCodeMissing as missing:
                raise UserCodeMissing(f"operator {self._operator}: {missing}") from missing
        what = f"on micro-batch {number}, of {rows} {'row' if rows == 1 else 'rows'}"
        try:
            made = function(frame)
        except BaseException as error:
            raise raised(self._operator, function, target, what, error) from error
        try:
            columns = self._columns(made)
        except RowMismatch as mismatch:
            told = raised(self._operator, function, target, what, mismatch)
            raise PermanentError(str(told)) from mismatch
        try:
            return columns.toArrow()
        except (PySparkException, Py4JError) as error:
            doing = f"the Spark job of {target} failed {what}:"
            raise UserCodeError(self._operator, doing, str(error)) from error

    def _columns(self, made: object) -> DataFrame:
        """The columns of the output schema in its order; further ones are dropped. Raises RowMismatch."""
        if not isinstance(made, DataFrame):
            raise RowMismatch(f"returned {shown(made)}; a transform returns a DataFrame")
        if made.isStreaming:
            raise RowMismatch("returned a streaming DataFrame; a transform returns one of the batch's rows")
        names = [field.name for field in made.schema.fields]
        given = {field.name: field.dataType for field in made.schema.fields}
        wanted = struct_type(self._output).fields
        for field in wanted:
            if field.name not in given:
                raise RowMismatch(
                    f"returned the columns {', '.join(names) or 'none'}; outputSchema has {field.name!r} too"
                )
            if names.count(field.name) > 1:
                raise RowMismatch(
                    f"returned {names.count(field.name)} columns {field.name!r}; keep one of them"
                )
            if given[field.name].simpleString() != field.dataType.simpleString():
                raise RowMismatch(
                    f"column {field.name!r} is {given[field.name].simpleString()}, and outputSchema says "
                    f"{field.dataType.simpleString()}; cast it"
                )
        return made.select(*(f"`{field.name.replace('`', '``')}`" for field in wanted))
