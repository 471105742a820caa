#!/usr/bin/env bash
# Runs one tier of tests and keeps the line with which pytest ends, so that `make test` can end with one
# line a tier.
#
#   tools/tier.sh unit [pytest's arguments]
#   tools/tier.sh --summary unit contract ...
#   tools/tier.sh --spark-classes    makes what the tests that start Spark would make first
#
# `slow` is the slow lane: those tests of all tiers that are marked so, and that no other tier takes.
# The end-to-end tests need a cluster, and are two tiers: e2e-together, which run side by side, then e2e-alone;
# `e2e-slow` is their slow lane, one by one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly kept=artifacts/tiers
readonly spark_classes=$PWD/.venv/spark.jsa
# Half of an end-to-end test is waiting.
readonly e2e_processes=${PENSTOCK_E2E_PROCESSES:-3}

if [[ $1 == --summary ]]; then
    shift
    for tier; do printf '%-12s %s\n' "$tier" "$(<"$kept/$tier")"; done
    exit
fi

# An archive of Spark's classes, as the worker's image has one: the tests start Spark's JVM about a hundred times,
# which takes half the time with it. A JVM that it does not fit goes on without.
archive_spark_classes() {
    if [[ ! -s $spark_classes || .venv/penstock-setup -nt $spark_classes ]]; then
        echo "== archive of Spark's classes, once for this .venv"
        .venv/bin/python images/worker/archive_classes.py "$spark_classes" >"$kept/spark-classes.log" 2>&1 ||
            { rm -f "$spark_classes"; echo "could not be made, see $kept/spark-classes.log; it goes without"; return; }
    fi
    export SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$spark_classes -Xlog:cds=off ${SPARK_SUBMIT_OPTS:-}"
}

mkdir -p "$kept"
if [[ $1 == --spark-classes ]]; then
    archive_spark_classes
    exit
fi
readonly tier=$1
shift
rm -f "${kept:?}/$tier"
colour=()
if [[ -t 1 ]]; then colour=(--color=yes); fi
# Where this is set, each of the hundreds of processes that tests start would compile its modules anew.
unset PYTHONDONTWRITEBYTECODE
# Neighbours in a file share what they start, so each process gets a run of them.
side_by_side=(--numprocesses=logical --maxprocesses=4 --dist=worksteal)
case $tier in
    e2e-together) choice=(e2e -m 'not alone and not slow' --numprocesses="$e2e_processes" --maxschedchunk=1) ;;
    e2e-alone) choice=(e2e -m 'alone and not slow') ;;
    e2e-slow) choice=(e2e -m slow) ;;
    slow) choice=(tests/unit tests/simulation tests/integration -m slow "${side_by_side[@]}") ;;
    *) choice=("tests/$tier" -m 'not slow' "${side_by_side[@]}") ;;
esac
if [[ $tier == integration || $tier == slow ]]; then
    archive_spark_classes
    # As a worker's JVM: what these sessions do is over before the better code of the second compiler pays.
    export SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${SPARK_SUBMIT_OPTS:-}"
fi
echo "== $tier"
code=0
.venv/bin/pytest -q --durations=8 --durations-min=5 "${colour[@]}" "${choice[@]}" "$@" | tee "$kept/$tier.log" || code=$?
tail -n 1 "$kept/$tier.log" >"$kept/$tier"
exit "$code"
