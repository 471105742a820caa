#!/usr/bin/env bash
# Loads images of the Docker engine into the cluster's two workers. Pods then name them as docker does, with
# imagePullPolicy IfNotPresent or Never.
#
#   e2e/cluster/load_images.sh IMAGE...
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
(($#)) || fail "which images? load_images.sh IMAGE..."
use_own_engine

load() {
    python3 "$e2e_root/cluster/load_layers.py" "$cluster_name-worker,$cluster_name-worker2" "$@"
}

step "images loaded: $*" load "$@"
