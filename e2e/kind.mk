# The real cluster of the end-to-end tests; e2e/README.md says more.

.PHONY: kind-up
kind-up: ## Bring up the kind cluster of the end-to-end tests (minutes the first time, then about one)
	@e2e/cluster/up.sh

.PHONY: kind-down
kind-down: ## Take the kind cluster away; what was built stays cached
	@e2e/cluster/down.sh

.PHONY: e2e
e2e: setup-tests ## Run the end-to-end tests on a real kind cluster; KEEP=1 leaves it up afterwards
	@TIERS='e2e-together e2e-alone' e2e/run.sh $(PYTEST_ARGS)
	@tools/tier.sh --summary e2e-together e2e-alone

.PHONY: e2e-slow
e2e-slow: setup-tests ## Run the slow lane of the end-to-end tests: those whose promise another one holds too
	@TIERS=e2e-slow e2e/run.sh $(PYTEST_ARGS)
	@tools/tier.sh --summary e2e-slow

.PHONY: kind-demo
kind-demo: setup texts kind-up ## Install Penstock into the kind cluster and watch it count the words of real text
	@e2e/provide_images.sh
	@$(BIN)/python -m e2e.demo
