"""Spark SQL expressions over a schema: which are taken, and what type each has."""
