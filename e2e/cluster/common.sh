# shellcheck shell=bash
# What the scripts of e2e/ share: places, names, and how they speak. Sourced, never run.

# shellcheck disable=SC2034  # used by those who source this
{
    e2e_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    checkout=$(dirname "$e2e_root")
    cache=${PENSTOCK_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock-e2e}
    state=$checkout/.penstock/e2e
    engine=$cache/engine
    engine_socket=$engine/docker.sock
    cluster_name=penstock
    kubeconfig=$state/kubeconfig
    shared_directory=$cache/shared
}

say() { printf 'penstock e2e: %s\n' "$*"; }

fail() {
    printf 'penstock e2e: %s\n' "$*" >&2
    exit 1
}

# step NAME COMMAND...: runs it, and says how long it took. Who sources this has `set -e`: a failure ends it all.
step() {
    local started=$EPOCHREALTIME took
    current_step=$1
    shift
    "$@"
    took=$((${EPOCHREALTIME/[.,]/} - ${started/[.,]/}))
    printf 'penstock e2e: %-46s %4d.%d s\n' "$current_step" $((took / 1000000)) $((took / 100000 % 10))
    current_step=
}

current_step=
set -E
trap '[[ -z $current_step || $BASH_SUBSHELL -ne 0 ]] || printf "penstock e2e: failed: %s\n" "$current_step" >&2' ERR

# The engine that engine.sh started, if it runs: exports DOCKER_HOST.
use_own_engine() {
    if engine_runs; then export DOCKER_HOST=unix://$engine_socket; fi
}

engine_runs() {
    local pid
    [[ -f $engine/pid && -S $engine_socket ]] || return
    pid=$(<"$engine/pid")
    [[ -d /proc/$pid && $(tr '\0' ' ' <"/proc/$pid/cmdline") == *"$engine"* ]]
}

# has_capability BIT: whether a process of this machine may have it at all.
has_capability() {
    local bounding
    bounding=$(sed -n 's/^CapBnd:\t//p' /proc/self/status)
    (((16#$bounding >> $1) & 1))
}

# Whether a Go stands here that can fetch a newer one by itself, or is new enough.
go_fits() {
    local version
    version=$(go env GOVERSION 2>/dev/null) || return
    [[ $version =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= 21))
}

# Prints a hash of the files (by path) and words given, short enough for a name.
hash_of() {
    local each
    for each; do
        if [[ $each == */* && -f $each ]]; then cat "$each"; else printf '%s\n' "$each"; fi
    done | sha256sum | cut -c1-12
}
