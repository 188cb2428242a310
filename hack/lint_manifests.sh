#!/usr/bin/env bash
# Checks what the chart and the kustomizations install: the chart with helm-unittest, all with kube-score.
source "$(dirname "$0")/lib.sh"

say "building helm, helm-unittest and kube-score"
mkdir -p bin
counted go -C hack/release build -v -o "$PWD/bin/" helm.sh/helm/v4/cmd/helm
tool helm-unittest github.com/helm-unittest/helm-unittest/cmd/helm-unittest chart
tool kube-score github.com/zegl/kube-score/cmd/kube-score manifests

say "helm-unittest"
bin/helm-unittest charts/toolcall-operator

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
kubectl=$(cluster assets)/kubectl
for config in default namespaced store console mcp; do
  "$kubectl" kustomize "config/$config" >"$folder/$config.yaml"
done
render() { bin/helm template r charts/toolcall-operator --namespace toolcall-system --kube-version v1.37.0 "$@"; }
render >"$folder/chart.yaml"
render --set 'console.enabled=true,mcp.enabled=true,networkPolicy.enabled=true,namespaces={team}' >"$folder/chart-all.yaml"

# Not asked of them: images that are pulled anew (a release names them by digest), limits of the processor (they slow down what has work to
# do), and of a disk that nothing writes to, another address for liveness than for readiness (it is asked less often), and a NetworkPolicy of the
# operator, which is networkPolicy.enabled of the chart.
say "kube-score"
bin/kube-score score --kubernetes-version v1.37 --output-format ci --ignore-container-cpu-limit --ignore-test \
  container-image-pull-policy,container-ephemeral-storage-request-and-limit,pod-probes-identical,pod-networkpolicy \
  "$folder"/*.yaml >"$folder/scores" || { grep CRITICAL "$folder/scores" >&2; die "kube-score has found something"; }
