"""Processor classes that run in Penstock, in Spark's own transformWithState and in PySpark's TwsTester, and
what they put out there. `integration/test_conformance.py` wants it to be equal."""
