#!/usr/bin/env bash
# Makes the image of kind's nodes from Debian packages, tools built from Go modules, and kind's own files for a
# node, which its Go module holds. Prints the image's name. What is in the cache or the engine is not made again.
#
#   e2e/node-image/build_image.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
# shellcheck source=e2e/cluster/common.sh
source "$here/../cluster/common.sh"
# shellcheck source=e2e/node-image/tools.sh
source "$here/tools.sh"
use_own_engine

readonly shell_image=penstock-e2e/shell:1
readonly provisioner_image=penstock-e2e/local-path-provisioner:v0.0.30
readonly root_packages=(
    systemd systemd-sysv dbus mount util-linux procps hostname kmod bash jq          # the node as a machine
    containerd runc containernetworking-plugins                                      # what runs containers
    iptables nftables iproute2 conntrack ethtool socat ca-certificates               # network
    busybox                                                                          # the shell image
)
readonly node_tools=(kubelet kubeadm kubectl crictl)
readonly control_plane=(kube-apiserver kube-controller-manager kube-scheduler etcd)
readonly every_node=(kube-proxy coredns local-path-provisioner)

declare -A binary
for tool in "${node_tools[@]}" "${control_plane[@]}" "${every_node[@]}"; do
    binary[$tool]=$("$here/build_tool.sh" "$tool")
done

mapfile -t recipe < <(find "$here/files" "$here"/*.{c,yaml} "$here/build_image.sh" "$here/../cluster/debian_root.sh" -type f | sort)
key=$(hash_of "${recipe[@]}" "${root_packages[@]}" $'\n'"${binary[*]}" "$(module_source kind)")
readonly image=penstock-e2e/node:$kubernetes_version-$key
readonly saved=$cache/images/node-$key.tar

# `docker import` cannot say a stop signal; systemd wants its own.
import() {
    docker import "$saved" "$image-root" >/dev/null
    # A client without BuildKit says so on every build: heard only when the build fails.
    docker build --quiet --tag "$image" - >"$cache/images/build.log" 2>&1 <<EOF || { cat "$cache/images/build.log"; return 1; }
FROM $image-root
ENV container=docker PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
EOF
    docker rmi "$image-root" >/dev/null
}

# --- Debian --------------------------------------------------------------------------------------

unpack_debian() {
    local tar
    tar=$cache/images/node-debian-$(hash_of "${root_packages[@]}" "$here/../cluster/debian_root.sh").tar
    [[ -f $tar ]] || step "Debian packages of a node" "$here/../cluster/debian_root.sh" "$tar" "${root_packages[@]}"
    tar -xf "$tar" --numeric-owner -C "$root"
}

# --- images of what runs in the cluster ------------------------------------------------------------

# image_of FOLDER NAME [CHANGE...]: an image whose root is the folder.
image_of() {
    local folder=$1 name=$2 change options=(--change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin')
    shift 2
    for change; do options+=(--change "$change"); done
    tar -c --owner=0 --group=0 -C "$folder" . | docker import "${options[@]}" - "$name" >/dev/null
}

# What kubeadm calls the image of a component, tag included.
name_of() { grep "/$1:" "$work/kubeadm-images"; }

# copy_programs FOLDER PROGRAM... [-- PATTERN...]: programs of the Debian root with the libraries they ask for,
# and what else `find` finds by the patterns.
copy_programs() {
    local folder=$1
    shift
    # shellcheck disable=SC2016  # expanded by the shell in the new root
    chroot "$root" bash -euc '
        cd /
        programs=()
        while (($#)) && [[ $1 != -- ]]; do programs+=("$1"); shift; done
        for pattern in "${@:2}"; do
            find /usr /etc -path "$pattern"
            # Extensions are loaded by name, and ask for libraries of their own.
            programs+=($(find /usr -type f -path "$pattern.so"))
        done
        for program in "${programs[@]}"; do
            echo "$program"
            ldd "$program" | grep -o "/[^ ]*" | while read -r library; do
                echo "$(realpath "${library%/*}")/${library##*/}"
                realpath "$library"
            done
        done' copy "$@" |
        sort -u | sed 's|^/||' >"$folder.files"
    tar -c --no-recursion -C "$root" -T "$folder.files" | tar -x -C "$folder"
    ln -s usr/lib "$folder/lib"
    ln -s usr/lib64 "$folder/lib64"
}

make_component_images() {
    local tool folder
    "${binary[kubeadm]}" config images list --kubernetes-version "$kubernetes_version" >"$work/kubeadm-images"
    for tool in "${control_plane[@]}" "${every_node[@]}" pause shell; do mkdir -p "$work/$tool/usr/local/bin"; done
    for tool in "${control_plane[@]}" "${every_node[@]}"; do
        cp "${binary[$tool]}" "$work/$tool/usr/local/bin/$tool"
    done
    for tool in "${control_plane[@]}"; do image_of "$work/$tool" "$(name_of "$tool")"; done

    gcc -O2 -Wall -Wextra -Werror -static -s -o "$work/pause/pause" "$here/pause.c"
    image_of "$work/pause" "$(name_of pause)" 'ENTRYPOINT ["/pause"]' 'USER 65535:65535'
    image_of "$work/coredns" "$(name_of coredns)" 'ENTRYPOINT ["/usr/local/bin/coredns"]'
    mkdir -m 1777 "$work/local-path-provisioner/tmp"
    image_of "$work/local-path-provisioner" "$provisioner_image" 'ENTRYPOINT ["/usr/local/bin/local-path-provisioner"]'

    mkdir -p "$work/shell/etc" "$work/shell/usr/bin"
    mkdir -m 1777 "$work/shell/tmp"
    ln -s usr/bin "$work/shell/bin"
    copy_programs "$work/shell" /usr/bin/busybox
    chroot "$work/shell" /usr/bin/busybox --list | while read -r tool; do
        [[ $tool == busybox ]] || ln -s busybox "$work/shell/usr/bin/$tool"
    done
    printf 'root:x:0:0:root:/:/bin/sh\n' >"$work/shell/etc/passwd"
    image_of "$work/shell" "$shell_image" 'CMD ["/bin/sh"]'

    # kube-proxy writes its rules with the same programs as the node.
    folder=$work/kube-proxy
    copy_programs "$folder" /usr/sbin/{xtables-nft-multi,xtables-legacy-multi,nft,conntrack} -- \
        '*/xtables/*' '/usr/sbin/ip*tables*' '/etc/alternatives/ip*tables*'
    chroot "$folder" /usr/sbin/iptables --version >/dev/null
    chroot "$folder" /usr/sbin/iptables --match statistic --help >/dev/null
    chroot "$folder" /usr/sbin/nft --version >/dev/null
    mkdir -p "$folder/run"
    image_of "$folder" "$(name_of kube-proxy)"

    mkdir -p "$root/kind/images"
    local names=()
    for tool in "${control_plane[@]}"; do names+=("$(name_of "$tool")"); done
    docker save -o "$root/kind/images/control-plane.tar" "${names[@]}"
    docker save -o "$root/kind/images/every-node.tar" "$(name_of kube-proxy)" "$(name_of coredns)" \
        "$(name_of pause)" "$provisioner_image" "$shell_image"
}

# --- the node --------------------------------------------------------------------------------------

furnish_node() {
    local kind_files tool unit
    kind_files=$(cd "$here/tools/kind" && go mod download && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files
    cp -rT --no-preserve=mode,ownership "$kind_files" "$root.kind"
    cp -rT "$here/files" "$root.kind"
    chmod -R u=rwX,go=rX "$root.kind"
    chmod 755 "$root.kind"/kind/bin/* "$root.kind"/usr/local/bin/*
    cp -r "$root.kind/." "$root"
    for tool in "${node_tools[@]}"; do install -m 755 "${binary[$tool]}" "$root/usr/bin/$tool"; done
    # kind's units look for these where kind's own image has them.
    for tool in containerd ctr; do ln -sf "/usr/bin/$tool" "$root/usr/local/bin/$tool"; done
    mkdir -p "$root/opt/cni/bin" "$root/etc/cni/net.d" "$root/etc/kubernetes/manifests"
    for tool in "$root"/usr/lib/cni/*; do ln -s "/usr/lib/cni/${tool##*/}" "$root/opt/cni/bin/"; done

    # Only what a node needs starts: Debian's own wants go.
    rm -f "$root"/etc/systemd/system/*.wants/* "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* \
        "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}* \
        "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service
    mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/etc/systemd/system/containerd.service.d"
    for unit in kubelet containerd undo-mount-hacks import-images pod-routes; do
        ln -s "/etc/systemd/system/$unit.service" "$root/etc/systemd/system/multi-user.target.wants/"
    done
    ln -s /dev/null "$root/etc/systemd/system/systemd-binfmt.service"
    echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
    # A machine without CAP_SYS_RESOURCE cannot lower an oom score.
    printf '[Service]\nOOMScoreAdjust=0\n' >"$root/etc/systemd/system/containerd.service.d/oom.conf"
    sed -i -e "s|sandbox_image = .*|sandbox_image = \"$(name_of pause)\"|" \
        -e 's|restrict_oom_score_adj = false|restrict_oom_score_adj = true|' "$root/etc/containerd/config.toml"
    chroot "$root" ctr oci spec | jq 'del(.process.rlimits)
        | .hooks.createContainer += [{"path": "/kind/bin/mount-product-files.sh"}]' >"$root/etc/containerd/cri-base.json"

    echo "$kubernetes_version" >"$root/kind/version"
    mkdir -p "$root/kind/manifests"
    sed -e "s|SHELL_IMAGE|$shell_image|; s|PROVISIONER_IMAGE|$provisioner_image|" "$here/storage.yaml" \
        >"$root/kind/manifests/default-storage.yaml"
    : >"$root/etc/machine-id"
}

# --- in order ----------------------------------------------------------------------------------------

if ! docker image inspect "$image" >/dev/null 2>&1; then
    if [[ ! -f $saved ]]; then
        mkdir -p "$cache/images"
        work=$(mktemp -d "$cache/images/node.XXXXXX")
        trap 'rm -rf "$work"' EXIT
        root=$work/root
        mkdir "$root"
        {
            unpack_debian
            step "images of what runs in the cluster" make_component_images
            step "the node's files" furnish_node
            tar -c --numeric-owner -f "$saved.partial" -C "$root" .
            mv "$saved.partial" "$saved"
        } >&2
    fi
    step "import of the node image" import >&2
fi
echo "$image"
