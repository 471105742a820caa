# The benches' targets; the Makefile includes this. BENCH_SECONDS makes every figure's run longer, BENCH_DIR
# says which disk holds the state of both systems.

BENCH := $(BIN)/python -m

# A worker's image has its modules compiled; where this is set, each process of a bench would compile this
# clone's anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench-latency
bench-latency: setup-tests ## Bench: latency from source to sink, beside Spark's micro-batches (BUSY=2: and two that spin)
	@$(BENCH) bench.latency

.PHONY: bench-throughput
bench-throughput: setup-tests ## Bench: records per CPU-second at the highest rate held, beside Spark's
	@$(BENCH) bench.throughput

.PHONY: bench-throughput-forms
bench-throughput-forms: setup-tests ## Bench: records per CPU-second of a count and of a step in each form
	@$(BENCH) bench.throughput_forms

.PHONY: bench-event-time
bench-event-time: setup-tests ## Bench: timers, windows beside Spark's, what watermarks cost, the pandas form
	@$(BENCH) bench.event_time

.PHONY: bench-idle-wide
bench-idle-wide: setup-tests ## Bench: what many tasks without work cost themselves and their store
	@$(BENCH) bench.idle_wide

.PHONY: bench-state-size
bench-state-size: setup-tests ## Bench: how many bytes of its store the state of a key takes
	@$(BENCH) bench.state_size

.PHONY: bench-servers
bench-servers: setup-tests ## Bench: commits a second of a node with one store server and with several, a core each
	@$(BENCH) bench.servers

.PHONY: bench-idle
bench-idle: setup-tests ## Bench: what an idle worker costs in CPU and memory
	@$(BENCH) bench.idle

.PHONY: bench-spark-sweep
bench-spark-sweep: setup-tests ## Bench: find the peer's best settings anew and freeze them (an hour or more)
	@$(BENCH) bench.spark_sweep

.PHONY: bench-profile
bench-profile: setup-tests ## Bench: where Penstock's tasks spend their time, by a sampling profiler from outside
	@$(BENCH) bench.profile_tasks

.PHONY: bench-schedule
bench-schedule: setup-tests texts kind-up ## Bench: from a decision to work, on the kind cluster, and what the control side costs
	@e2e/provide_images.sh >&2
	@$(BENCH) bench.schedule

.PHONY: bench-move
bench-move: setup-tests ## Bench: how long a moved shard commits nothing, by size and kind of move, beside a restart
	@$(BENCH) bench.move

.PHONY: bench-migration
bench-migration: setup-tests ## Bench: N-Storm's experiment: throughput while executors change nodes, beside restarts
	@$(BENCH) bench.migration

.PHONY: bench-sla-live
bench-sla-live: setup-tests ## Bench: a LatencySLA kept live under bursts (SEED=N draws others), beside static sizes
	@$(BENCH) bench.sla_live --seed $(or $(SEED),1)

.PHONY: bench-scale-out
bench-scale-out: setup-tests ## Bench: from a load step to the first record on more capacity, beside Flink's rescale
	@$(BENCH) bench.scale_out

.PHONY: bench-omega
bench-omega: setup-tests ## Bench: throughput and latency while keys are shuffled, by Elasticutor, static, resource-centric
	@$(BENCH) bench.omega

.PHONY: bench-sla
bench-sla: setup-tests ## Bench: StreamSwitch's experiments in virtual time (SEEDS='7 8' for other days, BENCH_FULL=1 for all curves)
	@$(BENCH) bench.sla $(foreach seed,$(SEEDS),--seed $(seed))

.PHONY: bench-scheduler
bench-scheduler: setup-tests ## Bench: time of one of Elasticutor's decisions at 8, 32 and 256 nodes
	@$(BENCH) bench.scheduler

.PHONY: bench-tables
bench-tables: setup-tests ## Bench: what it costs to count pairs of keys, and to decide about routing tables
	@$(BENCH) bench.tables

.PHONY: bench-locality
bench-locality: setup-tests ## Bench: correlated keys on one host: throughput over throttled links, drifting weeks, a table made while rows flow (root; SEED=N, BENCH_FULL=1)
	@$(BENCH) bench.locality.comparison --seed $(or $(SEED),1)

.PHONY: bench-elasticity
bench-elasticity: setup-tests ## Bench: Elasticutor's experiments in virtual time (SEED=N; BENCH_FULL=1 for 32 nodes and all values)
	@$(BENCH) bench.elasticity --seed $(or $(SEED),1)

.PHONY: bench-sources
bench-sources: setup-tests ## Bench: Kafka to Kafka beside Spark's connector, at least once and exactly once
	@PYTHONPATH=tests $(BENCH) bench.sources

.PHONY: bench-operator
bench-operator: setup-tests ## Bench: what the operator costs with 1 000 Topologies on 200 nodes, and how soon it answers
	@PYTHONPATH=tests $(BENCH) bench.operator

.PHONY: bench-peers
bench-peers: setup-tests ## Bench: the same keyed count in Penstock, Spark, Flink and bytewax (BENCH_SYSTEMS='penstock bytewax' for some, BUSY=2)
	@PYTHONPATH=tests $(BENCH) bench.peers.comparison
