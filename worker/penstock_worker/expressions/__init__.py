"""Spark SQL expressions worked out over Arrow's columns. Loads pyarrow: only who uses them imports this."""
