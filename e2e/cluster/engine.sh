#!/usr/bin/env bash
# The Docker engine of the end-to-end tests, where none runs: a dockerd of its own, with its data, socket and
# logs in the cache directory. An engine that runs already is never touched.
#
#   e2e/cluster/engine.sh up      starts it, unless an engine answers
#   e2e/cluster/engine.sh down    ends it, by the pid that was recorded; images stay
#   e2e/cluster/engine.sh purge   ends it and removes its images and volumes
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
readonly wait_s=60
readonly cap_sys_resource=24

up() {
    if engine_runs; then
        say "the engine runs already (pid $(<"$engine/pid"))"
        return
    fi
    if timeout 10 docker info >/dev/null 2>&1; then
        say "a Docker engine runs on this machine: uses that"
        return
    fi
    ((EUID == 0)) || fail "no Docker engine answers, and starting one needs root."
    local arguments=(
        --data-root "$engine/data" --exec-root "$engine/run" --pidfile "$engine/dockerd.pid"
        --host "unix://$engine_socket" --group root --log-level warn
    )
    mkdir -p "$engine"
    rm -f "$engine_socket" "$engine/dockerd.pid" "$engine/pid"
    if ! has_capability "$cap_sys_resource"; then
        say "this machine lacks CAP_SYS_RESOURCE: containers get a runtime that does not ask for it"
        install -m 755 "$e2e_root/cluster/runc_without_resource.py" "$engine/runc_without_resource"
        arguments+=(--add-runtime "softened=$engine/runc_without_resource" --default-runtime softened)
    fi
    (
        # Open files of who calls this, such as a lock, are not the engine's to keep.
        for path in /proc/"$BASHPID"/fd/*; do
            descriptor=${path##*/}
            ((descriptor <= 2)) || eval "exec $descriptor>&-"
        done
        exec setsid dockerd "${arguments[@]}" >>"$engine/dockerd.log" 2>&1 </dev/null
    ) &
    echo "$!" >"$engine/pid"
    local deadline=$((SECONDS + wait_s))
    until DOCKER_HOST=unix://$engine_socket docker version >/dev/null 2>&1; do
        engine_runs || [[ -d /proc/$(<"$engine/pid") ]] || { tail -n 20 "$engine/dockerd.log" >&2; fail "dockerd ended; its log stands above."; }
        ((SECONDS < deadline)) || { tail -n 20 "$engine/dockerd.log" >&2; fail "dockerd did not answer within $wait_s s; its log stands above."; }
        sleep 0.2
    done
}

down() {
    if ! engine_runs; then
        say "no engine of ours runs"
        return
    fi
    local pid deadline=$((SECONDS + wait_s))
    pid=$(<"$engine/pid")
    kill "$pid"
    while [[ -d /proc/$pid ]]; do
        ((SECONDS < deadline)) || fail "dockerd (pid $pid) did not end within $wait_s s."
        sleep 0.2
    done
    rm -f "$engine/pid" "$engine_socket"
}

case ${1:-} in
    up | down) "$1" ;;
    purge)
        down
        rm -rf "${engine:?}"
        ;;
    *) fail "engine.sh knows up, down and purge" ;;
esac
