"""Penstock: keyed stream processing that keeps a latency promise.

This package is the part both sides share: it imports neither kopf, kubernetes nor pyspark.
"""

__version__ = "0.1.0"
