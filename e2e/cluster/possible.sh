#!/usr/bin/env bash
# Whether the cluster of the end-to-end tests can be made on this machine at all; ends with 1 and says why where it
# cannot. What up.sh would install or build is not missing.
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
readonly cap_net_admin=12 cap_sys_admin=21

cannot() {
    say "no kind cluster can be made on this machine: $*"
    exit 1
}

go_fits || cannot "it has no Go 1.21 or newer."
use_own_engine
if timeout 10 docker info >/dev/null 2>&1; then exit; fi
why="no Docker engine answers, and starting one needs"
((EUID == 0)) || cannot "$why root."
if ! has_capability "$cap_net_admin" || ! has_capability "$cap_sys_admin"; then
    cannot "$why CAP_NET_ADMIN and CAP_SYS_ADMIN, which a container without privileges lacks."
fi
command -v dockerd >/dev/null || command -v apt-get >/dev/null ||
    cannot "$why dockerd, and there is no apt-get to install it with."
