#!/usr/bin/env bash
# Builds Penstock's images from this checkout and loads them into the cluster's nodes.
#
#   e2e/provide_images.sh [build | load]    one of the two alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tag=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# shellcheck source=e2e/cluster/env.sh
source e2e/cluster/env.sh
if [[ ${1:-build} == build ]]; then make --no-print-directory images; fi
if [[ ${1:-load} == load ]]; then
    e2e/cluster/load_images.sh "penstock-operator:$tag" "penstock-worker:$tag" "penstock-word-count:$tag"
fi
