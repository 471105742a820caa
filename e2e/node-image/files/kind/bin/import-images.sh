#!/bin/sh
# Gives the node's containerd the images it was built with: those every node needs, and on the control plane
# those of the control plane. Runs once in a node's life.
set -eu
cd /kind/images
ctr --namespace k8s.io images import --all-platforms every-node.tar >/dev/null
case $(hostname) in
    *control-plane*) ctr --namespace k8s.io images import --all-platforms control-plane.tar >/dev/null ;;
esac
touch /kind/images-imported
