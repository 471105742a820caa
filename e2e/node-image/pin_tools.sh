#!/usr/bin/env bash
# Writes tools/MODULE/go.mod and go.sum anew from the versions in tools.sh.
#
#   e2e/node-image/pin_tools.sh            all modules
#   e2e/node-image/pin_tools.sh kind etcd  these
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# shellcheck source=e2e/node-image/tools.sh
source "$here/tools.sh"

pin() {
    local module=$1 source path version file tool staging replaced goline
    source=$(module_source "$module") || { echo "pin tools: there is no module $module in tools.sh" >&2; exit 1; }
    path=${source% *} version=${source#* }
    file=$(go mod download -json "$path@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
    goline=$(sed -n 's/^go //p' "$file")
    mkdir -p "$here/tools/$module"
    cd "$here/tools/$module"
    rm -f go.mod go.sum
    printf 'module penstock.dev/e2e/%s\n\ngo %s\n' "$module" "$goline" >go.mod
    # A dependency's own replacements do not count, so they are repeated here: those by another module as
    # they stand, and Kubernetes' ./staging folders by the modules that are published from them.
    while read -r staging _ replaced _; do
        case $replaced in
            ./staging/*) go mod edit -replace "$staging=$staging@v0.${version#v1.}" ;;
            . | ./* | ../*) ;;
            *) go mod edit -replace "$staging=$(replacement "$file" "$staging")" ;;
        esac
    done < <(awk '/^replace \(/ { block = 1; next } block && /^\)/ { block = 0 }
                  block && /=>/ { print } /^replace [^(]/ { sub(/^replace /, ""); print }' "$file" |
             sed -E 's/^[[:space:]]+//; s/^([^ ]+) v[^ ]+ =>/\1 =>/')
    go mod edit -require "$path@$version"
    for tool in "${go_tools[@]}"; do
        [[ $(tool_module "$tool") != "$module" ]] || go mod edit -tool "$(tool_package "$tool")"
    done
    go mod tidy -e 2>/dev/null || go mod tidy
}

replacement() {
    awk -v name="$2" '{ sub(/^replace /, ""); sub(/^[ \t]+/, "") }
        $1 == name && /=>/ { sub(/.*=> /, ""); print $1 "@" $2; exit }' "$1"
}

for module in "${@:-}"; do
    [[ -z $module ]] || { (pin "$module"); continue; }
    for tool in "${go_tools[@]}"; do tool_module "$tool"; done | sort -u |
        while read -r name; do (pin "$name"); done
done
