#!/usr/bin/env bash
# Takes the cluster of the end-to-end tests away, and ends the Docker engine if up.sh started it. What was built
# stays in the cache.
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The nodes go side by side: each takes most of its time to end what runs in it.
remove_cluster() {
    local container removals=() removal code=0
    for container in $(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$cluster_name"); do
        docker rm --force --volumes "$container" >/dev/null &
        removals+=($!)
    done
    for removal in "${removals[@]}"; do wait "$removal" || code=$?; done
    return "$code"
}

use_own_engine
if timeout 10 docker info >/dev/null 2>&1; then
    step "cluster: taken away" remove_cluster
else
    say "no Docker engine answers, so there is no cluster"
fi
if engine_runs; then step "Docker engine: ended" "$e2e_root/cluster/engine.sh" down; fi
rm -rf "${shared_directory:?}" "$kubeconfig"
