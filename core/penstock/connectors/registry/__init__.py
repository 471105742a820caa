"""Which kinds of sources and sinks there are. `kinds` lists them, apart from what they have in common."""

from penstock.connectors.registry.kinds import (
    READ_ONCE,
    SINKS,
    SOURCES,
    InitialStateSpec,
    SinkSpec,
    SourceSpec,
    named_code,
)

__all__ = ["READ_ONCE", "SINKS", "SOURCES", "InitialStateSpec", "SinkSpec", "SourceSpec", "named_code"]
