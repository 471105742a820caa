#!/usr/bin/env bash
# What the tests of foreachBatch need of PostgreSQL.
#
#   tools/postgres.sh jdbc   prints the folder with its JDBC driver, which Maven brings once for a machine (1 MB)
#   tools/postgres.sh bin    prints the folder with the server's programs, which tools/setup.sh --tests installs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/maven_jars.sh
source tools/maven_jars.sh

say() { printf 'postgres: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Debian keeps the servers of all versions apart, and off PATH.
bin() {
    local initdb
    initdb=$(find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1)
    [[ -n $initdb ]] || initdb=$(command -v initdb) ||
        fail "there is no PostgreSQL server here; tools/setup.sh --tests installs it"
    dirname "$initdb"
}

case ${1:-} in
    jdbc) jars_of tools/postgres/pom.xml postgres-jdbc ;;
    bin) bin ;;
    *) fail "knows jdbc and bin, not '${1:-}'" ;;
esac
