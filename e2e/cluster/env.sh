#!/usr/bin/env bash
# The environment in which kubectl, helm, kind and docker meet the cluster of the end-to-end tests.
#
#   source e2e/cluster/env.sh          in a shell: exports PATH, KUBECONFIG, DOCKER_HOST, PENSTOCK_E2E_SHARED
#   e2e/cluster/env.sh COMMAND...      runs the command in it
#   e2e/cluster/env.sh                 prints it, one NAME=VALUE a line

_penstock_e2e_environment() {
    local folder
    folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    # In a subshell: common.sh sets options and names of its own.
    (
        set -euo pipefail
        # shellcheck source=e2e/cluster/common.sh
        source "$folder/common.sh"
        use_own_engine
        printf 'PATH=%s\n' "$state/bin:${PATH#"$state/bin:"}"
        printf 'KUBECONFIG=%s\n' "$kubeconfig"
        printf 'PENSTOCK_E2E_SHARED=%s\n' "$shared_directory"
        [[ -z ${DOCKER_HOST:-} ]] || printf 'DOCKER_HOST=%s\n' "$DOCKER_HOST"
    )
}

while IFS= read -r _penstock_e2e_line; do
    export "${_penstock_e2e_line?}"
done < <(_penstock_e2e_environment)

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    if (($#)); then exec "$@"; else _penstock_e2e_environment; fi
fi
unset _penstock_e2e_line
unset -f _penstock_e2e_environment
