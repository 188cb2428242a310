#!/usr/bin/env bash
# Generates what follows from the Go sources: deep copies, CRDs, the operator's RBAC, the pages in docs/reference, and
# the chart's copies of those manifests.
source "$(dirname "$0")/lib.sh"

tool controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
tool crd-ref-docs github.com/elastic/crd-ref-docs

bin/controller-gen object crd:maxDescLen=10000 paths=./api/... output:crd:artifacts:config=config/crd
bin/controller-gen rbac:roleName=toolcall-operator paths=./controllers/... paths=./internal/operator/... output:rbac:artifacts:config=config/rbac

# A page for each kind, and one for the constants, which crd-ref-docs doesn't document.
for kind in $(sed -n 's/^    kind: //p' config/crd/toolcall.dev_*.yaml); do
  bin/crd-ref-docs --log-level=ERROR --config=hack/reference/config.yaml --templates-dir=hack/reference/templates \
    --renderer=markdown --source-path=api --template-value="kind=$kind" --output-path="docs/reference/${kind,,}.md"
done
awk -f hack/reference/conditions.awk api/v1alpha1/conditions.go >docs/reference/conditions.md

# The Helm chart installs the same kinds, rights, admission policies and alerts.
files=charts/toolcall-operator/files
rm -rf "$files"
mkdir -p "$files"/{crd,rbac,admission,monitoring}
cp config/crd/toolcall.dev_*.yaml config/crd/tools.yaml "$files/crd/"
cp config/rbac/{role,user_roles,bindings}.yaml "$files/rbac/"
cp config/admission/*.yaml "$files/admission/"
rm "$files/admission/kustomization.yaml"
cp config/monitoring/rules.yaml "$files/monitoring/"
