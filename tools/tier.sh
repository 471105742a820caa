#!/usr/bin/env bash
# Runs one tier of tests and keeps the line with which pytest ends, so that `make test` can end with one
# line a tier.
#
#   tools/tier.sh unit [pytest's arguments]
#   tools/tier.sh --summary unit contract ...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kept=artifacts/tiers

if [[ $1 == --summary ]]; then
    shift
    for tier; do printf '%-12s %s\n' "$tier" "$(<"$kept/$tier")"; done
    exit
fi

readonly tier=$1
shift
mkdir -p "$kept"
rm -f "${kept:?}/$tier"
colour=()
if [[ -t 1 ]]; then colour=(--color=yes); fi
# The end-to-end tests need a cluster, and are apart.
if [[ $tier == e2e ]]; then tests=e2e; else tests=tests/$tier; fi
echo "== $tier"
code=0
.venv/bin/pytest -q "${colour[@]}" "$tests" "$@" | tee "$kept/$tier.log" || code=$?
tail -n 1 "$kept/$tier.log" >"$kept/$tier"
exit "$code"
