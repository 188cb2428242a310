#!/usr/bin/env bash
# Generates what follows from the Go sources: deep copies, CRDs, the operator's RBAC, the pages about the kinds, and
# what the chart has of those.
source "$(dirname "$0")/lib.sh"

mkdir -p bin
go -C hack/tools build -o "$PWD/bin/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen
bin/controller-gen object crd:maxDescLen=10000 paths=./api/... output:crd:artifacts:config=config/crd
bin/controller-gen rbac:roleName=toolcall-operator paths=./controllers/... paths=./internal/operator/... output:rbac:artifacts:config=config/rbac
go -C hack run ./reference -types "$PWD/api/v1alpha1" -crds "$PWD/config/crd" -out "$PWD/docs/reference"

# The Helm chart has the same kinds, rights, admission policies and alerts, as files.
files=charts/toolcall-operator/files
rm -rf "$files"
mkdir -p "$files"/{crd,rbac,admission,monitoring}
cp config/crd/toolcall.dev_*.yaml config/crd/tools.yaml "$files/crd/"
cp config/rbac/{role,user_roles,bindings}.yaml "$files/rbac/"
cp config/admission/*.yaml "$files/admission/"
rm "$files/admission/kustomization.yaml"
cp config/monitoring/rules.yaml "$files/monitoring/"
