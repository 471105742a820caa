#!/usr/bin/env bash
# Brings up the cluster of the end-to-end tests: kind, one control plane, two workers. A second call finds it
# running and only makes sure of it. Two ways, and it says which one it takes:
#
#   plain    a Docker engine runs and can pull images: kind as it is, with its own node image, pinned
#   offline  otherwise: everything is built from Go modules and Debian packages
#
# PENSTOCK_E2E_WAY=plain or =offline takes the choice away. `up.sh engine` ends when a Docker engine runs.
set -euo pipefail

# shellcheck source=e2e/cluster/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# kind v0.31.0's node image for Kubernetes 1.35, by checksum.
readonly plain_image=kindest/node:v1.35.0@sha256:452d707d4862f52530247495d180205e029056831160e22870e37e3f6c1ac31f
readonly nodes=("$cluster_name-control-plane" "$cluster_name-worker" "$cluster_name-worker2")
readonly probe_image=hello-world
readonly least_inotify_instances=512
readonly node_grace_s=25
started_s=$SECONDS

# --- which way ---------------------------------------------------------------------------------------

choose_way() {
    local image
    use_own_engine
    image=$(timeout 10 docker inspect --format '{{.Config.Image}}' "${nodes[0]}" 2>/dev/null) || true
    if [[ -n ${PENSTOCK_E2E_WAY:-} ]]; then
        way=$PENSTOCK_E2E_WAY why="PENSTOCK_E2E_WAY says so"
    elif [[ $image == penstock-e2e/* ]]; then
        way=offline why="the cluster that exists was built that way"
    elif [[ -n $image ]]; then
        way=plain why="the cluster that exists was made that way"
    elif engine_runs; then
        way=offline why="the engine that runs is our own"
    elif ! timeout 10 docker info >/dev/null 2>&1; then
        way=offline why="no Docker engine answers"
    elif timeout 30 docker pull --quiet "$probe_image" >/dev/null 2>&1; then
        way=plain why="a Docker engine runs and can pull images"
    else
        way=offline why="the Docker engine that runs cannot pull images"
    fi
    [[ $way == plain || $way == offline ]] || fail "PENSTOCK_E2E_WAY is plain or offline, not $way."
    say "takes the way '$way': $why"
}

# --- tools and images ----------------------------------------------------------------------------------

# Puts links to the tools where env.sh has them on PATH.
provide_tools() {
    local path
    mkdir -p "$state/bin"
    "$e2e_root/node-image/build_tool.sh" kind kubectl helm kubeconform >"$state/tools"
    while read -r path; do ln -sf "$path" "$state/bin/"; done <"$state/tools"
    export PATH=$state/bin:$PATH
}

provide_node_tools() { "$e2e_root/node-image/build_tool.sh" --all >/dev/null; }

provide_image() {
    if [[ $way == plain ]]; then
        image=$plain_image
        docker image inspect "$image" >/dev/null 2>&1 || docker pull --quiet "$image"
    else
        "$e2e_root/node-image/build_image.sh" >"$state/node-image"
        image=$(<"$state/node-image")
    fi
}

# --- the cluster -----------------------------------------------------------------------------------------

write_configuration() {
    local role
    mkdir -p "$shared_directory"
    chmod 1777 "$shared_directory"
    {
        printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\n'
        if [[ $way == offline ]]; then printf 'networking:\n  disableDefaultCNI: true\n'; fi
        # The tests stop a node, and Kubernetes would tell of it after 50 s. (A map: kubeadm's v1beta3, until 1.36.)
        printf 'kubeadmConfigPatches:\n- |\n  kind: ClusterConfiguration\n'
        printf '  controllerManager: {extraArgs: {node-monitor-grace-period: %ss}}\n' "$node_grace_s"
        if [[ ! -f /sys/fs/cgroup/cgroup.controllers ]]; then
            # Kubernetes 1.35 asks to be told that it may run on the older cgroups.
            printf -- '- |\n  kind: KubeletConfiguration\n'
            printf '  apiVersion: kubelet.config.k8s.io/v1beta1\n  metadata: {name: config}\n  failCgroupV1: false\n'
        fi
        printf 'nodes:\n'
        for role in control-plane worker worker; do
            printf -- '- role: %s\n  image: "%s"\n  extraMounts:\n' "$role" "$image"
            printf -- '  - {hostPath: "%s", containerPath: /penstock-shared, propagation: None}\n' "$shared_directory"
        done
    } >"$state/kind.yaml"
}

# Three kubelets and containerds watch more files than a machine usually grants one user.
raise_inotify_limit() {
    local file=/proc/sys/fs/inotify/max_user_instances
    (($(<"$file") < least_inotify_instances)) || return 0
    if [[ -w $file ]]; then
        say "raises fs.inotify.max_user_instances from $(<"$file") to $least_inotify_instances"
        echo "$least_inotify_instances" >"$file"
    fi
}

create_cluster() {
    if ! kind create cluster --name "$cluster_name" --config "$state/kind.yaml" --kubeconfig "$kubeconfig" \
        >"$state/create.log" 2>&1; then
        tail -n 60 "$state/create.log" >&2
        fail "kind could not create the cluster; its words stand above, all of them in $state/create.log"
    fi
}

start_nodes() {
    local node
    for node in "${nodes[@]}"; do
        [[ $(docker inspect --format '{{.State.Running}}' "$node") == true ]] || docker start "$node" >/dev/null
    done
}

# --- the network of the offline way --------------------------------------------------------------------------

# Each node routes its own pods, point to point, and knows the way to the other nodes' pods.
connect_pods() {
    local node other deadline=$((SECONDS + 60)) routes
    declare -A networks
    for node in "${nodes[@]}"; do
        until networks[$node]=$(kubectl get node "$node" --output 'jsonpath={.spec.podCIDR}') &&
            [[ -n ${networks[$node]} ]]; do
            ((SECONDS < deadline)) || fail "node $node has no network for its pods after 60 s."
            sleep 0.3
        done
    done
    for node in "${nodes[@]}"; do
        routes=
        for other in "${nodes[@]}"; do
            [[ $other == "$node" ]] || routes+="${networks[$other]} $other"$'\n'
        done
        docker exec --interactive "$node" sh -euc 'cat >/kind/pod-routes && /kind/bin/pod-routes.sh' <<<"${routes%$'\n'}"
        docker exec --interactive "$node" sh -euc \
            'cat >/etc/cni/net.d/.partial && mv /etc/cni/net.d/.partial /etc/cni/net.d/10-penstock.conflist' <<EOF
{"cniVersion": "0.4.0", "name": "penstock", "plugins": [
  {"type": "ptp", "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses", "routes": [{"dst": "0.0.0.0/0"}],
            "ranges": [[{"subnet": "${networks[$node]}"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
    done
}

# Names outside the cluster are not looked up: there is nowhere to go.
configure_names() {
    kubectl apply --server-side --force-conflicts --filename - >/dev/null <<'EOF'
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
        errors
        health {
           lameduck 5s
        }
        ready
        kubernetes cluster.local in-addr.arpa ip6.arpa {
           pods insecure
           fallthrough in-addr.arpa ip6.arpa
           ttl 5
        }
        cache 5
        reload 2s
        loadbalance
    }
EOF
}

# --- ready ---------------------------------------------------------------------------------------------------

wait_ready() {
    local node deadline=$((SECONDS + 180))
    until kubectl get --raw /readyz >/dev/null 2>&1; do
        ((SECONDS < deadline)) || fail "the API server does not answer after 180 s; docker logs ${nodes[0]} says more."
        sleep 0.5
    done
    kubectl wait --for=condition=Ready nodes --all --timeout=180s >/dev/null
    kubectl --namespace kube-system rollout status deployment/coredns daemonset/kube-proxy --timeout=180s >/dev/null
    for node in "${nodes[@]}"; do
        # What kube-proxy says of itself: 503 as long as its last writing of rules failed.
        until docker exec "$node" bash -c 'exec 3<>/dev/tcp/127.0.0.1/10256
            printf "GET /healthz HTTP/1.0\r\n\r\n" >&3; grep -q "200 OK" <&3' 2>/dev/null; do
            ((SECONDS < deadline)) || fail "the Service rules of $node are not written; kube-proxy's log says why."
            sleep 0.5
        done
    done
    kubectl --namespace local-path-storage rollout status deployment/local-path-provisioner --timeout=180s >/dev/null
}

# --- in order ------------------------------------------------------------------------------------------------

mkdir -p "$state" "$cache"
choose_way
"$e2e_root/cluster/setup.sh" "$way"
if [[ $way == offline ]]; then step "Docker engine" "$e2e_root/cluster/engine.sh" up; fi
if [[ ${1:-} == engine ]]; then exit; fi
use_own_engine
step "tools: kind, kubectl, helm, kubeconform" provide_tools
export KUBECONFIG=$kubeconfig
if docker inspect "${nodes[@]}" >/dev/null 2>&1; then
    step "the cluster exists: its nodes run" start_nodes
    kind export kubeconfig --name "$cluster_name" --kubeconfig "$kubeconfig" --quiet
else
    if [[ $way == offline ]]; then step "programs of the nodes" provide_node_tools; fi
    step "node image" provide_image
    raise_inotify_limit
    kind delete cluster --name "$cluster_name" --quiet 2>/dev/null
    write_configuration
    step "cluster: three nodes" create_cluster
fi
if [[ $way == offline ]]; then
    step "network of the pods" connect_pods
    step "names of services" configure_names
fi
step "everything is ready" wait_ready
say "up after $((SECONDS - started_s)) s. To use it: source e2e/cluster/env.sh, then kubectl get nodes"
say "or give kubectl --kubeconfig ${kubeconfig#"$PWD/"}"
