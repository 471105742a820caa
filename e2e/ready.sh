#!/usr/bin/env bash
# The cluster of the end-to-end tests with Penstock's images in its nodes, from a checkout. A cluster that runs
# already is used.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=e2e/cluster/common.sh
source e2e/cluster/common.sh
images=

end_images() {
    if [[ -n $images ]]; then kill "$images" || true; fi
}

trap end_images EXIT
e2e/cluster/up.sh engine
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
