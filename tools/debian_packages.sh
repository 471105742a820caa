#!/usr/bin/env bash
# What installing Debian packages takes beside apt-get itself; to be sourced. A caller sets its own EXIT trap before
# it calls hold_services, or not at all.

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

policy=/usr/sbin/policy-rc.d
policy_is_ours=

remove_policy() {
    [[ -z $policy_is_ours ]] || as_root rm -f "$policy"
    policy_is_ours=
}

# Debian starts a packaged service as it is installed, and enables it for the next boot. Penstock and its tests start
# servers of their own, so a service would only take a port and memory.
hold_services() {
    [[ -e $policy ]] && return
    policy_is_ours=yes
    trap remove_policy EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
}
