"""Windows and joins that come with Penstock: StatefulProcessors over state and event-time timers.

They know nothing of Penstock's runtime and run in Spark's `transformWithState` as well. What they are to do
say `penstock.dataflow.window` and `interval_join`; `processors` makes them. Pure are `slices` and `sessions`
(which windows a time is in), `aggregators` and what they are made of, and `join_times`.
"""
