#!/usr/bin/env bash
# Prints the path of a Helm 3: the one on PATH, else the one in the cache of the end-to-end tests, which is built
# from its Go module when it is not there (a minute or more, once). Fails with a sentence where that cannot be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if found=$(command -v helm) && [[ $("$found" version --short 2>/dev/null) == v3.* ]]; then
    echo "$found"
    exit
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
e2e/node-image/build_tool.sh helm 2>"$log" && exit
if command -v go >/dev/null; then
    cat "$log" >&2
    why="and it could not be built"
else
    why="and no Go to build it with"
fi
printf 'Helm 3 is not installed, %s: the chart goes unchecked\n' "$why" >&2
exit 1
