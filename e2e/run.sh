#!/usr/bin/env bash
# The end-to-end tests, from a checkout to their summary line: cluster, images, chart, tests. A cluster that runs
# already is used, and stays; one that this brought up is taken away at the end.
#
#   KEEP=1 e2e/run.sh     keeps the cluster, and what is installed in it
#   e2e/run.sh -k zipf    further words go to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=e2e/cluster/common.sh
source e2e/cluster/common.sh
brought_up=

take_away() {
    if [[ -n $brought_up && ${KEEP:-} != 1 ]]; then e2e/cluster/down.sh; fi
}

cluster_runs() {
    use_own_engine
    [[ -s $kubeconfig ]] && timeout 10 docker inspect "$cluster_name-control-plane" >/dev/null 2>&1
}

trap take_away EXIT
cluster_runs || brought_up=yes
e2e/cluster/up.sh
e2e/provide_images.sh
rm -rf artifacts/e2e
# No `exec`: the trap has to run.
tools/tier.sh e2e "$@"
