#!/usr/bin/env bash
# Builds tools from their Go modules into the cache, and prints the path of each binary. What is there is
# not built again: the path holds the tool's version and a hash of the recipe.
#
#   e2e/node-image/build_tool.sh kubelet kind ...
#   e2e/node-image/build_tool.sh --all
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly cache=${PENSTOCK_E2E_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock-e2e}
# shellcheck source=e2e/node-image/tools.sh
source "$here/tools.sh"

binary_path() {
    local tool=$1 module recipe
    module=$here/tools/$(tool_module "$tool")
    recipe=$({
        tool_package "$tool"
        tool_linker_flags "$tool"
        cat "$module/go.mod" "$module/go.sum"
        uname -m
    } | sha256sum | cut -c1-12)
    echo "$cache/bin/$tool-$(tool_version "$tool")-$recipe/$tool"
}

build() {
    local tool=$1 target=$2 module started=$SECONDS partial
    module=$here/tools/$(tool_module "$tool")
    partial=$(dirname "$target").$$
    mkdir -p "$partial"
    # GOTOOLCHAIN: a Go that is older than the tool asks for fetches the one it needs.
    (cd "$module" && CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off GOTOOLCHAIN=auto go build -trimpath -buildvcs=false \
        -ldflags "$(tool_linker_flags "$tool")" -o "$partial/$tool" "$(tool_package "$tool")") || {
        rm -rf "$partial"
        return 1
    }
    # Whoever was first with the same recipe made the same binary.
    mv -T "$partial" "$(dirname "$target")" 2>/dev/null || rm -rf "$partial"
    printf '  built %-24s %-9s %4d s\n' "$tool" "$(tool_version "$tool")" $((SECONDS - started)) >&2
}

if [[ ${1:-} == --all ]]; then set -- "${go_tools[@]}"; fi
for tool; do
    target=$(binary_path "$tool")
    if [[ ! -x $target ]]; then
        build "$tool" "$target" || { echo "e2e: $tool could not be built; go's own words stand above." >&2; exit 1; }
    fi
    echo "$target"
done
