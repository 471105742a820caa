#!/usr/bin/env bash
# Gathers what an image's `docker build` needs into its context folder, so that the build itself asks no
# package index: the wheels of one extra of requirements.lock, checked against the lock's hashes, and the
# package's own wheel.
#
#   images/wheels.sh operator CONTEXT    CONTEXT gets requirements.txt, wheels/ and package/
#
# Wheels are for the Python of the images, whatever Python the host has. They are gathered again only when
# the lock or the dependencies change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly extra=$1 context=$2
readonly image_python=3.11
# Packages that are published as source only; all else comes as a wheel.
readonly from_source=(pyspark)
readonly pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
architecture=$(uname -m)
readonly architecture

fail() {
    printf 'penstock images: %s\n' "$*" >&2
    exit 1
}

dependencies_key() {
    {
        printf '%s\n' "$extra" "$image_python" "$architecture"
        cat requirements.lock images/wheels.sh
        sed -n '/^dependencies/,/^\[project\.scripts\]/p' pyproject.toml
    } | sha256sum
}

# The pins of the extra's packages and of all that they need: only names and versions.
choose_pins() {
    .venv/bin/uv pip compile --quiet --extra "$extra" --constraint requirements.lock \
        --python-version "$image_python" --python-platform "$architecture-unknown-linux-gnu" \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml
}

# The lock's own entries for the pins on stdin, hashes included. Markers are done with: the pins are for the
# images, and pip would ask them of the host's Python.
with_hashes() {
    awk 'NR == FNR { if ($1 ~ /==/) wanted[$1]; next }
         /^[^ ]/ { taken = ($1 in wanted); if (taken) found++; sub(/ ; [^\\]*/, " ") }
         taken
         END { for (pin in wanted) all++; if (found < all) exit 1 }' - requirements.lock
}

gather() {
    local platforms=(--platform "manylinux2014_$architecture") minor
    # Debian 12 has glibc 2.36; pip takes each tag only when it is named.
    for minor in 17 24 26 27 28 31 34 35 36; do platforms+=(--platform "manylinux_2_${minor}_$architecture"); done
    rm -rf "$context/wheels" "$context/requirements.txt"
    mkdir -p "$context/wheels"
    choose_pins | with_hashes >"$context/requirements.txt" ||
        fail "requirements.lock lacks a package of extra [$extra]: run 'make lock'."
    local sources
    sources=$(printf '|^%s==' "${from_source[@]}")
    awk -v sources="${sources#|}" '/^[^ ]/ { taken = ($0 !~ sources) } taken' "$context/requirements.txt" \
        >"$context/binary.txt"
    awk -v sources="${sources#|}" '/^[^ ]/ { taken = ($0 ~ sources) } taken' "$context/requirements.txt" \
        >"$context/source.txt"
    "${pip[@]}" download --no-deps --require-hashes --only-binary=:all: --python-version "$image_python" \
        --implementation cp "${platforms[@]}" --dest "$context/wheels" -r "$context/binary.txt"
    if [[ -s $context/source.txt ]]; then
        "${pip[@]}" wheel --no-deps --require-hashes --wheel-dir "$context/wheels" -r "$context/source.txt"
    fi
    # In the image the wheels are all there is, and one built here has a hash of its own.
    sed -n 's/^\([^ ]*==[^ ]*\).*/\1/p' "$context/requirements.txt" >"$context/pins.txt"
    mv "$context/pins.txt" "$context/requirements.txt"
    rm -f "$context/binary.txt" "$context/source.txt"
}

build_package() {
    rm -rf "$context/package"
    mkdir -p "$context/package"
    "${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$context/package" .
}

mkdir -p "$context"
if [[ ! -f $context/key || $(<"$context/key") != "$(dependencies_key)" ]]; then
    rm -f "$context/key"
    echo "penstock images: gathers the wheels of extra [$extra]"
    gather
    dependencies_key >"$context/key"
fi
build_package
