# shellcheck shell=bash
# Which tools the cluster is made of: names, versions, Go packages. Sourced by build_tool.sh and pin_tools.sh.
#
# A tool's Go module stands in tools/MODULE (go.mod, go.sum): committed, so that what is built is pinned by
# checksum. After a change of a version here: pin_tools.sh MODULE.

readonly kubernetes_version=v1.35.4
readonly kubernetes_tools=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubeadm kubectl)
readonly other_tools=(kind etcd coredns crictl local-path-provisioner helm kubeconform)
# In the order in which they are built: what takes longest first.
# shellcheck disable=SC2034  # used by those who source this
readonly go_tools=("${kubernetes_tools[@]}" "${other_tools[@]}")

# The folder of tools/ whose go.mod the tool is built from.
tool_module() {
    case $1 in
        kube*) if [[ $1 == kubeconform ]]; then echo kubeconform; else echo kubernetes; fi ;;
        *) echo "$1" ;;
    esac
}

# The upstream Go module behind a folder of tools/, with its version.
module_source() {
    case $1 in
        kubernetes) echo "k8s.io/kubernetes $kubernetes_version" ;;
        kind) echo "sigs.k8s.io/kind v0.33.0" ;;
        etcd) echo "go.etcd.io/etcd/server/v3 v3.6.8" ;;
        coredns) echo "github.com/coredns/coredns v1.13.1" ;;
        crictl) echo "sigs.k8s.io/cri-tools v1.36.0" ;;
        local-path-provisioner) echo "github.com/rancher/local-path-provisioner v0.0.30" ;;
        helm) echo "helm.sh/helm/v3 v3.19.2" ;;
        kubeconform) echo "github.com/yannh/kubeconform v0.7.0" ;;
        *) return 1 ;;
    esac
}

tool_version() {
    local source
    source=$(module_source "$(tool_module "$1")") || return
    echo "${source#* }"
}

tool_package() {
    local source path
    source=$(module_source "$(tool_module "$1")") || return
    path=${source% *}
    case $1 in
        kubeconform) echo "$path/cmd/kubeconform" ;;
        kube* | helm | crictl) echo "$path/cmd/$1" ;;
        *) echo "$path" ;;
    esac
}

# Where the tools look up their own version: set by the linker, since a build from modules has no git.
tool_linker_flags() {
    local version flags="-s -w" package
    version=$(tool_version "$1") || return
    case $(tool_module "$1") in
        kubernetes)
            for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
                flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1"
                flags+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$version") -X $package.gitTreeState=clean"
                flags+=" -X $package.gitCommit=0000000000000000000000000000000000000000"
                flags+=" -X $package.buildDate=1970-01-01T00:00:00Z"
            done
            ;;
        crictl) flags+=" -X sigs.k8s.io/cri-tools/pkg/version.Version=$version" ;;
        helm) flags+=" -X helm.sh/helm/v3/internal/version.version=$version" ;;
        kubeconform) flags+=" -X main.version=$version" ;;
    esac
    echo "$flags"
}
