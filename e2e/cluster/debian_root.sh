#!/usr/bin/env bash
# Makes a small Debian 12 root file system as a tar file, with mmdebstrap, from the machine's own apt sources
# where they are of Debian 12.
#
#   e2e/cluster/debian_root.sh TARGET.tar PACKAGE...
set -euo pipefail

readonly suite=bookworm
readonly target=$1
shift
packages=$(IFS=,; echo "$*")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# mmdebstrap reads neither the machine's sources nor its apt settings (a proxy, say) by itself.
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    if [[ -s $file ]] && grep -q "debian $suite \|^Suites:.*\b$suite\b" "$file"; then sources+=("$file"); fi
done
apt-config dump | grep '^Acquire::' >"$work/apt.conf" || true

# The manuals, translations and package lists are no use in a container.
# shellcheck disable=SC2016  # $1 is the new root: mmdebstrap's shell expands it
mmdebstrap --quiet --variant=minbase --mode=root --format=tar \
    --include="$packages" \
    --aptopt="$work/apt.conf" --aptopt='Apt::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/* "$1"/etc/apt/apt.conf.d/99mmdebstrap' \
    --customize-hook='rm -rf "$1"/etc/resolv.conf "$1"/etc/hostname' \
    "$suite" "$target.partial" "${sources[@]}"
mv "$target.partial" "$target"
