"""Sinks: the ports (`writer`, `batches.writer`) and their kinds' writers; `kinds.sinks` has whose."""
