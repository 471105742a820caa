#!/usr/bin/env bash
# Runs one tier of tests and keeps the line with which pytest ends, so that `make test` can end with one
# line a tier.
#
#   tools/tier.sh unit [pytest's arguments]
#   tools/tier.sh --summary unit contract ...
#
# The end-to-end tests need a cluster, and are two tiers: e2e-together, which run side by side, then e2e-alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kept=artifacts/tiers
# Half of an end-to-end test is waiting.
readonly e2e_processes=${PENSTOCK_E2E_PROCESSES:-3}

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
case $tier in
    e2e-together) choice=(e2e -m 'not alone' --numprocesses="$e2e_processes" --maxschedchunk=1) ;;
    e2e-alone) choice=(e2e -m alone) ;;
    # Neighbours in a file share what they start, so each process gets a run of them.
    *) choice=("tests/$tier" --numprocesses=logical --maxprocesses=4 --dist=worksteal) ;;
esac
echo "== $tier"
code=0
.venv/bin/pytest -q "${colour[@]}" "${choice[@]}" "$@" | tee "$kept/$tier.log" || code=$?
tail -n 1 "$kept/$tier.log" >"$kept/$tier"
exit "$code"
