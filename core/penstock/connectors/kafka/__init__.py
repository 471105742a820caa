"""Kafka, in and out: what a user writes of a cluster and its topics, and what a plan holds of it.

`connection` is what source and sink share; `client` makes the settings of the client library from it, with
credentials from files, and `failures` says its errors in words. The worker's `sources.kafka` reads.
"""
