"""A user's data source, looked at before anything starts: made, and asked for its reader or writer.

That is what Spark's planner does as well. Whatever is outside may be away where this is asked, so what is
raised for that is only a note. Neighbour: `inspect_code` puts it beside what it finds of other code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql.datasource import DataSource

from penstock.api.columns import in_words
from penstock.connectors.named_code import NamedCode
from penstock.dataflow.ddl import InvalidSchema, parse_schema
from penstock.errors import PermanentError
from penstock_worker.user_code.data_sources import NoDataSource, data_source_class, made, reader_of
from penstock_worker.user_code.running import users_traceback
from penstock_worker.values.spark_types import UnknownType, schema_of, struct_type


class Findings(Protocol):
    def fault(self, message: str) -> None: ...

    def note(self, message: str) -> None: ...


def look_at_data_source(code: NamedCode, base_dir: Path, found: Findings) -> None:
    """Tell `found` what is wrong with the class that `code` names."""
    target = code.target
    step = "__init__"
    try:
        source = made(data_source_class(target, base_dir), code.options)
        if code.writes:
            step = "streamWriter"
            if type(source).streamWriter is DataSource.streamWriter:
                found.fault(f"{target!r} has no streamWriter: there is nothing to write it by")
            # With a schema only a task can ask for it.
            return
        step = "schema"
        _compare(source, code, found)
        step = "its reader"
        reader_of(source, struct_type(parse_schema(code.schema)), bounded=code.bounded)
    except NoDataSource as wrong:
        found.fault(str(wrong))
    except OSError as error:
        found.note(f"{target!r} raised in {step} here, and may do so in a task:\n{users_traceback(error)}")
    except BaseException as error:  # noqa: BLE001 - user code may raise anything: that is the finding
        found.fault(f"{target!r} raised in {step}:\n{users_traceback(error)}")


def _compare(source: DataSource, code: NamedCode, found: Findings) -> None:
    """The columns that the manifest gives are what counts, as in Spark; the class may say others."""
    if type(source).schema is DataSource.schema:
        return
    try:
        said = schema_of(source.schema())
    except (InvalidSchema, UnknownType, PermanentError) as error:
        found.note(f"schema() of {code.target!r} cannot be compared with the manifest's: {error}")
        return
    given = parse_schema(code.schema)
    if [(c.name, c.type) for c in said.columns] != [(c.name, c.type) for c in given.columns]:
        found.note(
            f"schema() of {code.target!r} says ({in_words(said)}), and the manifest ({in_words(given)}), "
            "which is what rows have to fit"
        )
