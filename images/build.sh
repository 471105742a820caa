#!/usr/bin/env bash
# Builds the container images and prints their sizes: penstock-operator, penstock-worker, and
# penstock-word-count, the example's code and texts on the worker image.
#
#   images/build.sh VERSION
#
# BASE_PYTHON and BASE_JAVA name the images to start from. Without them it is the Dockerfiles' public one where
# the engine has it or can pull it, else one that e2e/cluster/base_image.sh makes from Debian packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly version=$1
readonly contexts=.penstock/images
public_base=$(sed -n 's/^ARG BASE_IMAGE=//p' images/worker/Dockerfile)
readonly public_base

say() { printf 'penstock images: %s\n' "$*"; }

fail() {
    printf 'penstock images: %s\n' "$*" >&2
    exit 1
}

# The engine that answers; the one of the end-to-end tests where no other does.
choose_engine() {
    timeout 10 docker info >/dev/null 2>&1 && return
    local line
    while IFS= read -r line; do
        [[ $line != DOCKER_HOST=* ]] || export DOCKER_HOST=${line#*=}
    done < <(e2e/cluster/env.sh)
    timeout 10 docker info >/dev/null 2>&1 ||
        fail "no Docker engine answers: start one, or the tests' own with e2e/cluster/engine.sh up."
}

public_base_is_there() {
    [[ ${DOCKER_HOST:-} != *penstock-e2e* ]] || return 1
    docker image inspect "$public_base" >/dev/null 2>&1 ||
        timeout 120 docker pull --quiet "$public_base" >/dev/null 2>&1
}

choose_bases() {
    base_python=${BASE_PYTHON:-} base_java=${BASE_JAVA:-}
    [[ -z $base_python || -z $base_java ]] || return 0
    if public_base_is_there; then
        say "starts from $public_base"
        base_python=${base_python:-$public_base} base_java=${base_java:-$public_base}
    else
        say "this engine cannot pull $public_base: starts from images made of Debian packages"
        e2e/cluster/base_image.sh
        base_python=${base_python:-penstock-base:python} base_java=${base_java:-penstock-base:java}
    fi
}

# build NAME DOCKERFILE CONTEXT BASE_ARGUMENT=BASE
build() {
    local name=penstock-$1:$version started=$SECONDS log=$contexts/$1.log
    docker build --tag "$name" --file "$2" --build-arg "$4" "$3" >"$log" 2>&1 || {
        tail -n 40 "$log" >&2
        fail "$name could not be built; the end of $log stands above."
    }
    printf 'penstock images: %-28s %5d MB, %d s\n' "$name" \
        $(($(docker image inspect --format '{{.Size}}' "$name") / 1000000)) $((SECONDS - started))
}

choose_engine
choose_bases
mkdir -p "$contexts"
images/wheels.sh operator "$contexts/operator"
build operator images/operator/Dockerfile "$contexts/operator" "BASE_IMAGE=$base_python"
images/wheels.sh worker "$contexts/worker"
cp images/worker/archive_classes.py "$contexts/worker/"
build worker images/worker/Dockerfile "$contexts/worker" "BASE_IMAGE=$base_java"
build word-count examples/word-count/Dockerfile examples/word-count "WORKER_IMAGE=penstock-worker:$version"
