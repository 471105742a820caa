#!/bin/sh
# Sets the routes to the other nodes' pods, as e2e/cluster wrote them down: lines of "NETWORK NODE".
set -eu
while read -r network node; do
    address=$(getent ahostsv4 "$node" | awk 'NR == 1 { print $1 }')
    ip route replace "$network" via "$address"
done </kind/pod-routes
