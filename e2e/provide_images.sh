#!/usr/bin/env bash
# Builds Penstock's images from this checkout and loads them into the cluster's nodes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# shellcheck source=e2e/cluster/env.sh
source e2e/cluster/env.sh
make --no-print-directory images
e2e/cluster/load_images.sh "penstock-operator:$version" "penstock-worker:$version" "penstock-word-count:$version"
