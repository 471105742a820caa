# The real cluster of the end-to-end tests; e2e/README.md says more.

.PHONY: kind-up
kind-up: ## Bring up the kind cluster of the end-to-end tests (minutes the first time, then about one)
	@e2e/cluster/up.sh

.PHONY: kind-down
kind-down: ## Take the kind cluster away; what was built stays cached
	@e2e/cluster/down.sh
