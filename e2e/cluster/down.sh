#!/usr/bin/env bash
# Takes the cluster of the end-to-end tests away, and ends the Docker engine if up.sh started it. What was built
# stays in the cache.
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

remove_cluster() {
    local containers
    containers=$(docker ps --all --quiet --filter "label=io.x-k8s.kind.cluster=$cluster_name")
    # shellcheck disable=SC2086  # one word a container
    [[ -z $containers ]] || docker rm --force --volumes $containers >/dev/null
}

use_own_engine
if timeout 10 docker info >/dev/null 2>&1; then
    step "cluster: taken away" remove_cluster
else
    say "no Docker engine answers, so there is no cluster"
fi
if engine_runs; then step "Docker engine: ended" "$e2e_root/cluster/engine.sh" down; fi
rm -rf "${shared_directory:?}" "$kubeconfig"
