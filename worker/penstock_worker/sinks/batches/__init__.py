"""Sinks that are written in batches, apart from the hot path: the port, its lanes, turns and thread.

A file takes the same bytes twice at the same place; a topic or another system's table does not. So what goes
there is fixed first, by an intent in the store, and whoever takes a shard up asks the sink what became of it
(record 0038). Neighbours: `sinks.kafka` is such a sink, `sinks.delivery` hands entries over.
"""
