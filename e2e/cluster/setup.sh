#!/usr/bin/env bash
# Installs what the cluster of the end-to-end tests needs and finds missing, with apt-get; says first what.
#
#   e2e/cluster/setup.sh plain     for kind on a Docker engine that can pull images: Go
#   e2e/cluster/setup.sh offline   for building everything: Go, a Docker engine, mmdebstrap, a C compiler, jq
#
# PENSTOCK_NO_INSTALL=1 declines. Nothing that is installed is started.
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=tools/debian_packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../tools/debian_packages.sh"
readonly static_probe='int main(void) { return 0; }'

case ${1:-} in
    plain | offline) ;;
    *) fail "setup.sh plain, or setup.sh offline" ;;
esac

wants=()
go_fits || fail "needs Go 1.21 or newer on PATH (1.25 and up are fetched by it): install it, then run this again."
if [[ $1 == offline ]]; then
    command -v docker >/dev/null && { docker info >/dev/null 2>&1 || command -v dockerd >/dev/null; } || wants+=(docker.io)
    command -v iptables >/dev/null || wants+=(iptables)
    command -v mmdebstrap >/dev/null || wants+=(mmdebstrap)
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || wants+=(debian-archive-keyring)
    command -v jq >/dev/null || wants+=(jq)
    command -v python3 >/dev/null || wants+=(python3)
    gcc -static -x c -o /dev/null - <<<"$static_probe" 2>/dev/null || wants+=(gcc libc6-dev)
fi
((${#wants[@]})) || exit 0

say "missing on this machine, and needed:"
for want in "${wants[@]}"; do
    case $want in
        docker.io) printf '  %-24s %s\n' "$want" "the Docker engine (its system service is left stopped)" ;;
        iptables) printf '  %-24s %s\n' "$want" "the Docker engine makes its networks with it" ;;
        mmdebstrap) printf '  %-24s %s\n' "$want" "makes Debian root file systems for images" ;;
        debian-archive-keyring) printf '  %-24s %s\n' "$want" "the keys that Debian's packages are signed with" ;;
        jq) printf '  %-24s %s\n' "$want" "edits JSON" ;;
        python3) printf '  %-24s %s\n' "$want" "runs a part of the engine's set-up" ;;
        gcc | libc6-dev) printf '  %-24s %s\n' "$want" "compiles the pause program" ;;
    esac
done
[[ ${PENSTOCK_NO_INSTALL:-} != 1 ]] || fail "PENSTOCK_NO_INSTALL=1 is set: install these yourself, then run this again."
command -v apt-get >/dev/null ||
    fail "there is no apt-get here (Debian and Ubuntu have it): install these yourself, then run this again."
((EUID == 0)) || command -v sudo >/dev/null ||
    fail "apt-get needs root and there is no sudo here: install these as root, then run this again."
say "installs them with apt-get. To decline: PENSTOCK_NO_INSTALL=1, or Ctrl-C."
if [[ -t 0 && -t 1 ]]; then sleep 5; fi
quiet=(-qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120)
as_root apt-get "${quiet[@]}" update || say "apt-get update failed in part; going on with the lists there are."
hold_services
as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    apt-get "${quiet[@]}" install -y --no-install-recommends "${wants[@]}" >/dev/null ||
    fail "apt-get could not install ${wants[*]}; its own words stand above."
remove_policy
if [[ " ${wants[*]} " == *" docker.io "* && -d /run/systemd/system ]]; then
    as_root systemctl --quiet disable docker.service docker.socket containerd.service ||
        say "the system's Docker engine stays enabled."
fi
