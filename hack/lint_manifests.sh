#!/usr/bin/env bash
# Checks what the chart and the kustomizations install: the chart with helm-unittest, all with kubeconform against the schemas of
# Kubernetes, and with kube-score.
source "$(dirname "$0")/lib.sh"

say "building helm-unittest, kubeconform and kube-score"
tool helm-unittest github.com/helm-unittest/helm-unittest/cmd/helm-unittest chart
tool kubeconform github.com/yannh/kubeconform/cmd/kubeconform manifests
tool kube-score github.com/zegl/kube-score/cmd/kube-score manifests

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
kubernetes=$(go -C hack/cluster/modules/kubernetes list -m -f '{{.Dir}}' k8s.io/kubernetes)
go -C hack/release run ./render "$PWD" "$kubernetes/api/openapi-spec/swagger.json" "$folder"

say "helm-unittest"
bin/helm-unittest charts/toolcall-operator

say "kubeconform"
bin/kubeconform -strict -summary -schema-location "$folder/schemas/{{.ResourceKind}}{{.KindSuffix}}.json" "$folder/manifests"

# Not asked of them: images that are pulled anew (a release names them by digest), limits of the processor (they slow down what has work to
# do), and of a disk that nothing writes to, another address for liveness than for readiness (it is asked less often), and a NetworkPolicy of the
# operator, which is networkPolicy.enabled of the chart.
say "kube-score"
bin/kube-score score --kubernetes-version v1.37 --output-format ci --ignore-container-cpu-limit --ignore-test \
  container-image-pull-policy,container-ephemeral-storage-request-and-limit,pod-probes-identical,pod-networkpolicy \
  "$folder"/manifests/*.yaml >"$folder/scores" || { grep CRITICAL "$folder/scores" >&2; die "kube-score has found something"; }
