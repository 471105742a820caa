#!/usr/bin/env bash
# Sets up what `make` needs and finds missing: system packages (with apt-get) and the virtual environment.
#
#   tools/setup.sh           what `penstock run` needs: Python >= 3.11, Redis >= 7.0 (or Valkey >= 7.2), Java >= 17
#   tools/setup.sh --tests   and what the tests need besides: strace, a C compiler, Maven, PostgreSQL
#
# Says what it will install before it does. PENSTOCK_NO_INSTALL=1 declines every system package,
# PENSTOCK_PYTHON names the Python to build .venv from. A second call finds nothing to do and is done
# in a fraction of a second.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly root
# shellcheck source=tools/debian_packages.sh
source "$root/tools/debian_packages.sh"
readonly venv=$root/.venv
readonly stamp=$venv/penstock-setup
readonly pause_s=5

say() { printf 'penstock setup: %s\n' "$*"; }

fail() {
    printf 'penstock setup: %s\n' "$*" >&2
    exit 1
}

# --- what is there -----------------------------------------------------------------------------

python_fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

# The first Python of a version that fits; prints nothing when there is none.
find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11 python3.14)
    [[ -z ${PENSTOCK_PYTHON:-} ]] || candidates=("$PENSTOCK_PYTHON")
    for candidate in "${candidates[@]}"; do
        if python_fits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
}

# Debian keeps the part of `venv` that puts pip into place in a package of its own.
venv_fits() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# "fits", "missing", or the name and version of a store that is too old. Looks as `penstock run` does:
# the first of the two that is on PATH.
store_state() {
    local server line least=7.0
    server=$(command -v redis-server || command -v valkey-server) || { echo missing; return; }
    line=$("$server" --version)
    [[ ${line,,} != *valkey* ]] || least=7.2
    [[ $line =~ v=([0-9]+\.[0-9]+) ]] || { echo "$server of an unknown version"; return; }
    if [[ $(printf '%s\n' "$least" "${BASH_REMATCH[1]}" | sort -V | head -n 1) == "$least" ]]; then
        echo fits
    else
        echo "$server ${BASH_REMATCH[1]}"
    fi
}

java_command() {
    if [[ -n ${JAVA_HOME:-} ]]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

java_major() {
    local text
    text=$("$(java_command)" -version 2>&1) || { echo 0; return; }
    [[ $text =~ version\ \"([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# --- system packages ---------------------------------------------------------------------------

# Names of a Java >= 17 in Debian and Ubuntu, the one that Spark is tested most on first.
choose_java_package() {
    local package
    for package in openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless; do
        if [[ $(LC_ALL=C apt-cache policy "$package") =~ Candidate:\ [0-9] ]]; then
            echo "$package"
            return
        fi
    done
    echo default-jre-headless
}

install_packages() {
    local wants=("$@") packages=() want
    say "missing on this machine, and needed:"
    for want in "${wants[@]}"; do
        case $want in
            python) printf '  %-14s %s\n' python3 "Python 3.11 or newer" ;;
            venv) printf '  %-14s %s\n' "$venv_package" "makes the virtual environment .venv" ;;
            redis) printf '  %-14s %s\n' redis-server "the node store (its system service is left stopped)" ;;
            java) printf '  %-14s %s\n' "Java >= 17" "Spark runs on it (openjdk, headless)" ;;
            strace) printf '  %-14s %s\n' strace "the tests slow an fsync down with it" ;;
            compiler) printf '  %-14s %s\n' gcc "the fault runner builds its wall clock with it" ;;
            maven) printf '  %-14s %s\n' maven "brings Kafka's broker, which the tests start" ;;
            postgres) printf '  %-14s %s\n' postgresql "the tests start a server of their own" ;;
        esac
    done
    if [[ ${PENSTOCK_NO_INSTALL:-} == 1 ]]; then
        fail "PENSTOCK_NO_INSTALL=1 is set: install these yourself, then run this again."
    fi
    command -v apt-get >/dev/null ||
        fail "there is no apt-get here (Debian and Ubuntu have it): install these yourself, then run this again."
    ((EUID == 0)) || command -v sudo >/dev/null ||
        fail "apt-get needs root and there is no sudo here: install these as root, then run this again."
    say "installs them with apt-get. To decline: PENSTOCK_NO_INSTALL=1, or Ctrl-C."
    if [[ -t 0 && -t 1 ]]; then sleep "$pause_s"; fi

    local quiet=(-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)
    as_root apt-get "${quiet[@]}" update || say "apt-get update failed in part; going on with the lists there are."
    for want in "${wants[@]}"; do
        case $want in
            python) packages+=(python3 python3-venv) ;;
            venv) packages+=("$venv_package") ;;
            redis) packages+=(redis-server) ;;
            java) packages+=("$(choose_java_package)") ;;
            strace) packages+=(strace) ;;
            compiler) packages+=(gcc libc6-dev) ;;
            maven) packages+=(maven) ;;
            postgres) packages+=(postgresql) ;;
        esac
    done
    say "apt-get install --no-install-recommends ${packages[*]}"
    [[ " ${wants[*]} " != *" redis "* && " ${wants[*]} " != *" postgres "* ]] || hold_services
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get "${quiet[@]}" install -y --no-install-recommends "${packages[@]}" >/dev/null ||
        fail "apt-get could not install ${packages[*]}; its own words stand above."
    remove_policy
    if [[ " ${wants[*]} " == *" redis "* && -d /run/systemd/system ]]; then
        as_root systemctl --quiet disable redis-server.service || say "the system's redis-server stays enabled."
    fi
    if [[ " ${wants[*]} " == *" postgres "* && -d /run/systemd/system ]]; then
        as_root systemctl --quiet disable postgresql.service || say "the system's PostgreSQL stays enabled."
    fi
}

# --- the virtual environment ---------------------------------------------------------------------

# Everything that the environment's content follows from; a clone that was moved counts too, because
# the scripts in .venv/bin carry its path.
environment_key() {
    {
        printf '%s\n' "$root" compiled
        cat "$root/requirements.lock"
        # Of pyproject.toml only what an editable install reads.
        sed -n '/^\[build-system\]/,/^\[tool\.ruff\]/p' "$root/pyproject.toml"
    } | sha256sum
}

environment_is_current() {
    [[ -f $stamp && $(<"$stamp") == "$(environment_key)" ]] && "$venv/bin/python" -c '' 2>/dev/null
}

environment_is_usable() { [[ -x $venv/bin/pip ]] && python_fits "$venv/bin/python"; }

make_environment() {
    if ! environment_is_usable; then
        say "makes the virtual environment .venv with $("$python" --version)."
        "$python" -m venv --clear "$venv"
    fi
    say "installs the Python packages of requirements.lock into .venv" \
        "(about 0.5 GB to download when none is cached; takes a minute or more)."
    rm -f "$stamp"
    local pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-compile)
    "${pip[@]}" --use-pep517 --require-hashes -r "$root/requirements.lock"
    "${pip[@]}" --no-deps --no-build-isolation -e "$root"
    # Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process would compile what it imports
    # anew: a worker's start took half as long again. pip compiles on one core, this on all.
    "$venv/bin/python" -W ignore -m compileall -qq -j 0 "$venv/lib" ||
        say "some modules in .venv could not be compiled; whatever imports them starts more slowly."
    environment_key >"$stamp"
    say "done."
}

# --- in order ------------------------------------------------------------------------------------

for_tests=no
case ${1:-} in
    "") ;;
    --tests) for_tests=yes ;;
    *) fail "knows only --tests, not $1" ;;
esac

python=
venv_package=python3-venv
current=no
if environment_is_current; then current=yes; fi

wants=()
if [[ $current == no ]] && ! environment_is_usable; then
    python=$(find_python)
    if [[ -n $python ]]; then
        # python3.12 asks for python3.12-venv, whatever the distribution's own version is.
        venv_fits "$python" || { venv_package=$(basename "$(readlink -f "$python")")-venv && wants+=(venv); }
    elif [[ -n ${PENSTOCK_PYTHON:-} ]]; then
        fail "PENSTOCK_PYTHON=$PENSTOCK_PYTHON is no Python 3.11 to 3.14."
    elif command -v python3 >/dev/null; then
        fail "$(python3 --version) does not fit: install a Python from 3.11 to 3.14 beside it" \
            "(on Ubuntu 22.04: apt-get install python3.11 python3.11-venv), then run this again."
    else
        wants+=(python)
    fi
fi
store=$(store_state)
if [[ $store == missing ]]; then
    wants+=(redis)
elif [[ $store != fits ]]; then
    fail "$store is too old: put Redis 7.0 (Valkey 7.2) or newer first on PATH, then run this again."
fi
if (($(java_major) < 17)); then
    [[ -z ${JAVA_HOME:-} ]] ||
        fail "JAVA_HOME=$JAVA_HOME holds no Java 17 or newer: unset it or let it name one, then run this again."
    wants+=(java)
fi
if [[ $for_tests == yes ]] && ! command -v strace >/dev/null; then wants+=(strace); fi
if [[ $for_tests == yes ]] && ! command -v cc >/dev/null; then wants+=(compiler); fi
if [[ $for_tests == yes ]] && ! command -v mvn >/dev/null; then wants+=(maven); fi
# Debian's servers are off PATH; what manages them is not.
if [[ $for_tests == yes ]] && ! command -v pg_ctlcluster >/dev/null && ! command -v initdb >/dev/null; then
    wants+=(postgres)
fi

if ((${#wants[@]})); then
    install_packages "${wants[@]}"
    hash -r
    store=$(store_state)
    [[ $store == fits ]] ||
        fail "$store, from the package, is too old: put Redis 7.0 (Valkey 7.2) or newer first on PATH, then run this again."
    (($(java_major) >= 17)) ||
        fail "java on PATH is still older than 17: let JAVA_HOME name the new one, then run this again."
fi
if [[ $current == no ]]; then
    if [[ " ${wants[*]-} " == *" python "* ]]; then
        python=$(find_python)
        [[ -n $python ]] ||
            fail "the packaged $(python3 --version) does not fit: install a Python from 3.11 to 3.14, then run this again."
    fi
    make_environment
fi
