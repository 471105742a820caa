#!/usr/bin/env bash
# The parts of `make lint`, side by side: style, types, layers, shell scripts, the chart, documents. Shows what each
# said, one after the other, and fails when one of them did.
#
#   tools/lint.sh SCRIPT...    the shell scripts to be checked
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly scripts=("$@") parts=(style types layers shell chart documents)

style() {
    .venv/bin/ruff check
    .venv/bin/ruff format --check
}

types() { .venv/bin/mypy; }

layers() { .venv/bin/lint-imports; }

shell() {
    if command -v shellcheck >/dev/null; then
        echo "shellcheck ${scripts[*]}"
        shellcheck -x "${scripts[@]}"
    else
        echo 'shellcheck is not installed: the shell scripts go unchecked'
    fi
}

chart() {
    local helm
    if helm=$(tools/helm.sh); then
        echo 'helm lint charts/penstock'
        "$helm" lint --strict --quiet --kube-version 1.35.4 charts/penstock
    fi
}

documents() { .venv/bin/pytest -q tests/unit/repository/test_documents.py; }

said=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$said"' EXIT
declare -A processes
for part in "${parts[@]}"; do
    "$part" >"$said/$part" 2>&1 &
    processes[$part]=$!
done
failed=()
for part in "${parts[@]}"; do
    wait "${processes[$part]}" || failed+=("$part")
    cat "$said/$part"
done
if ((${#failed[@]})); then
    echo "lint failed: ${failed[*]}" >&2
    exit 1
fi
