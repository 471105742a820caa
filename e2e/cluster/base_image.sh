#!/usr/bin/env bash
# Makes the images that Penstock's own are built on, from Debian packages:
#
#   penstock-base:python   Python 3.11 with venv and pip, redis-server 7.0, tini, ca-certificates
#   penstock-base:java     the same, and a headless Java 17
#
#   e2e/cluster/base_image.sh [python|java]...    both, when none is named
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
use_own_engine

readonly python_packages=(python3 python3-venv python3-pip redis-server tini ca-certificates)
readonly java_packages=("${python_packages[@]}" openjdk-17-jre-headless)

provide() {
    local variant=$1 key saved name
    shift
    key=$(hash_of "$@" "$e2e_root/cluster/debian_root.sh")
    name=penstock-base:$variant-$key
    saved=$cache/images/base-$variant-$key.tar
    if ! docker image inspect "$name" >/dev/null 2>&1; then
        if [[ ! -f $saved ]]; then
            mkdir -p "$cache/images"
            "$e2e_root/cluster/debian_root.sh" "$saved" "$@"
        fi
        docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8' \
            "$saved" "$name" >/dev/null
    fi
    docker tag "$name" "penstock-base:$variant"
}

if (($# == 0)); then set -- python java; fi
for variant; do
    case $variant in
        python) step "image penstock-base:python" provide python "${python_packages[@]}" ;;
        java) step "image penstock-base:java" provide java "${java_packages[@]}" ;;
        *) fail "base_image.sh knows python and java, not $variant" ;;
    esac
done
