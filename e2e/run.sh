#!/usr/bin/env bash
# The end-to-end tests, from a checkout to their summary lines: cluster, images, chart, tests. A cluster that runs
# already is used, and stays; one that this brought up is taken away at the end.
#
#   KEEP=1 e2e/run.sh     keeps the cluster, and what is installed in it
#   e2e/run.sh -k zipf    further words go to pytest
#   TIERS=e2e-slow e2e/run.sh    runs their slow lane
#   IMAGES=loaded e2e/run.sh     takes the images that the cluster's nodes have
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=e2e/cluster/common.sh
source e2e/cluster/common.sh
readonly none_chosen=5 # what pytest answers when no test was
brought_up='' images='' prepared=''

take_away() {
    if [[ -n $images ]]; then kill "$images" || true; fi
    if [[ ${KEEP:-} == 1 ]]; then return; fi
    if [[ -n $brought_up ]]; then
        e2e/cluster/down.sh
    elif [[ -n $prepared ]]; then
        .venv/bin/python -m e2e.prepare --remove
    fi
}

cluster_runs() {
    use_own_engine
    [[ -s $kubeconfig ]] && timeout 10 docker inspect "$cluster_name-control-plane" >/dev/null 2>&1
}

trap take_away EXIT
cluster_runs || brought_up=yes
e2e/cluster/up.sh engine
if [[ ${IMAGES:-} == loaded ]]; then
    e2e/cluster/up.sh
else
    # Bringing up the cluster is mostly waiting, making the images is mostly work.
    e2e/provide_images.sh build >"$state/images.log" 2>&1 &
    images=$!
    e2e/cluster/up.sh
    made=yes
    wait "$images" || made=
    images=
    cat "$state/images.log"
    [[ -n $made ]] || fail "the images could not be made, see above."
    e2e/provide_images.sh load
fi
rm -rf artifacts/e2e
prepared=yes
step "chart installed" .venv/bin/python -m e2e.prepare
failed=
for tier in ${TIERS:-e2e-together e2e-alone}; do
    code=0
    tools/tier.sh "$tier" "$@" || code=$?
    # Words for pytest may choose tests of the other tier alone.
    ((code == 0 || ($# > 0 && code == none_chosen))) || failed=yes
done
[[ -z $failed ]]
