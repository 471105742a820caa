# Every target says what it does after `##`; `make help` prints that.
# A fresh machine needs only git, make and bash: the targets call tools/setup.sh for what they need.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

BIN := .venv/bin
SCRIPTS := tools/*.sh images/*.sh e2e/*.sh e2e/cluster/*.sh e2e/node-image/*.sh .ci/run
TIERS := unit contract simulation integration
TIER_TESTS := $(addprefix test-,$(TIERS))
LOCK_OPTIONS := --universal --python-version 3.11 --generate-hashes --extra operator --extra worker --extra dev \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet
# A pace at which there is something to see; an unpaced run shows the rate, and latencies that are mostly waiting.
DEMO_LINES_PER_SECOND ?= 1500
# Passed on to pytest, as in: make test-unit PYTEST_ARGS='-k lock -x'
PYTEST_ARGS ?=

.PHONY: help
help: ## List the targets
	@test -t 1 && on="$$(printf '\033[36m')" off="$$(printf '\033[0m')"; \
	awk -v on="$$on" -v off="$$off" 'BEGIN { FS = ":.*## " } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  %s%-17s%s %s\n", on, $$1, off, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Set up what is missing for running: system packages (it says which), .venv
	@tools/setup.sh

.PHONY: setup-tests
setup-tests: ## Set up what is missing for running and for testing
	@tools/setup.sh --tests

.PHONY: demo
demo: setup texts ## Count the words of real text, live, and compare with a plain count
	$(BIN)/penstock run examples/word-count/topology.yaml --fresh \
		--set lines.source.files.ratePerSecond=$(DEMO_LINES_PER_SECOND)
	@$(BIN)/python examples/word-count/compare.py

.PHONY: texts
texts: setup ## Gather the word-count example's texts from the installed Python packages
	@$(BIN)/python examples/word-count/gather_texts.py

.PHONY: kafka-up
kafka-up: setup-tests ## Start a Kafka broker at 127.0.0.1:9092, to try topologies with; its data is in .penstock/kafka
	@tools/kafka.sh up

.PHONY: kafka-down
kafka-down: ## End the Kafka broker; its topics stay
	@tools/kafka.sh down

.PHONY: kafka-demo
kafka-demo: kafka-up ## Decide payments from a Kafka topic into another one, live, and compare with a plain pass
	@$(BIN)/python examples/kafka/demo.py

.PHONY: test
test: setup-tests lint $(TIER_TESTS) ## Run everything that a change must pass: lint and all tiers of tests
	@tools/tier.sh --summary $(TIERS)

.PHONY: $(TIER_TESTS)
test-unit: setup-tests ## Run the unit tests: pure code, no processes
test-contract: setup-tests ## Run the contract suites: every adapter of a port, the memory twin included
test-simulation: setup-tests ## Run the seeded simulation of faults in virtual time
test-integration: setup-tests ## Run the tests on real Redis, real Spark and real processes
$(TIER_TESTS):
	@tools/tier.sh $(@:test-%=%) $(PYTEST_ARGS)

.PHONY: spark-classes
spark-classes: setup-tests ## Make the archive of Spark's classes that the integration tests start Spark with
	@tools/tier.sh --spark-classes

.PHONY: test-slow
test-slow: setup-tests ## Run the slow lane, before a change is called done: tests whose promise a quicker one holds too
	@tools/tier.sh slow $(PYTEST_ARGS)

.PHONY: test-kills
test-kills: setup-tests ## Kill and stop every component at every step of a move; test-integration takes some
	PENSTOCK_KILLS=all $(BIN)/pytest -q tests/integration/test_kills.py tests/integration/test_worker_moves.py $(PYTEST_ARGS)

# A seed takes about two minutes; `python -m faults --help` has more to choose.
.PHONY: faults
faults: setup-tests ## Strike random topologies with random faults (SEEDS=1-20, MINUTES=60); test-slow does a little
	@PYTHONPATH=tests $(BIN)/python -m faults --seeds $(or $(SEEDS),1-5) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: search-policies
search-policies: setup-tests ## Search for loads on which the default policy is worse than its parents (SEEDS=200)
	PENSTOCK_POLICY_SEEDS=$(or $(SEEDS),200) $(BIN)/pytest -q tests/simulation/test_policies_compared.py \
		--numprocesses=logical --maxprocesses=4 $(PYTEST_ARGS)

.PHONY: lint
lint: setup ## Check style, types, layers, shell scripts, the chart and documents
	@tools/lint.sh $(SCRIPTS)

.PHONY: format
format: setup ## Put the code into the project's format and mend what ruff can mend
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: raise-protocol
raise-protocol: setup ## Keep the released function library as the version before, and raise the store protocol's version
	@$(BIN)/python tools/raise_protocol.py

.PHONY: crds
crds: setup ## Write crds/, and the chart's copy, from the models in core/penstock/api
	$(BIN)/penstock crds crds
	$(BIN)/penstock crds charts/penstock/files/crds

.PHONY: floors
floors: setup ## Draw the floors of the house into docs/architecture.md, from the code's imports and the contracts
	@$(BIN)/python tools/floors.py

.PHONY: reference
reference: setup ## Write the fields of sources and sinks into docs/connectors, from the models that check manifests
	@$(BIN)/python tools/connector_reference.py

.PHONY: lock
lock: setup ## Write requirements.lock anew: the newest versions that pyproject.toml allows, with hashes
	$(BIN)/uv pip compile $(LOCK_OPTIONS) --upgrade --output-file requirements.lock pyproject.toml

.PHONY: clean
clean: ## Remove what runs, tests and tools left behind; .venv stays
	rm -rf .penstock out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis artifacts dist
	rm -rf spark-warehouse metastore_db derby.log examples/word-count/texts examples/*/out
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

-include bench/bench.mk
-include images/images.mk
-include e2e/kind.mk
