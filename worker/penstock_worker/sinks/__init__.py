"""Sinks outside the topology: JSONL files (`jsonl`)."""
