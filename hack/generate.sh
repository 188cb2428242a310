#!/usr/bin/env bash
# Generates what follows from the Go sources: deep copies, CRDs, the operator's RBAC, for single namespaces too, the pages
# in docs/reference, the reasons of the runner and of the client libraries, and the chart's copies of those manifests.
source "$(dirname "$0")/lib.sh"

tool controller-gen sigs.k8s.io/controller-tools/cmd/controller-gen
tool crd-ref-docs github.com/elastic/crd-ref-docs

bin/controller-gen object crd:maxDescLen=10000 paths=./api/... output:crd:artifacts:config=config/crd
bin/controller-gen rbac:roleName=toolcall-operator paths=./controllers/... paths=./internal/operator/... output:rbac:artifacts:config=config/rbac

# The rights on what is in namespaces, as a Role: an installation for some namespaces has it in each.
in_namespace() {
  awk -v RS='---\n' '/\nkind: Cluster/ && /\n  name: toolcall-operator-namespaced\n/' "$1" | sed '/^#/d; /^$/d; s/kind: Cluster/kind: /'
}
in_namespace config/rbac/role.yaml >config/namespaced/namespace/role.yaml
in_namespace config/rbac/bindings.yaml >config/namespaced/namespace/binding.yaml

# A page for each kind. The constants, which crd-ref-docs doesn't document, have one too, and are used in other programs.
for kind in $(sed -n 's/^    kind: //p' config/crd/toolcall.dev_*.yaml); do
  bin/crd-ref-docs --log-level=ERROR --config=hack/reference/config.yaml --templates-dir=hack/reference/templates \
    --renderer=markdown --source-path=api --template-value="kind=$kind" --output-path="docs/reference/${kind,,}.md"
done
go -C hack run ./reasons

# The Helm chart installs the same kinds, rights, admission policies, alerts and dashboard.
files=charts/toolcall-operator/files
rm -rf "$files"
mkdir -p "$files"/{crd,rbac,admission,monitoring,store,console,mcp}
cp config/crd/toolcall.dev_*.yaml config/crd/tools.yaml "$files/crd/"
cp config/rbac/{role,user_roles,bindings}.yaml "$files/rbac/"
cp config/admission/*.yaml "$files/admission/"
rm "$files/admission/kustomization.yaml"
cp config/monitoring/{rules.yaml,dashboard.json} "$files/monitoring/"
cp config/store/{service_account,service,network_policy,stateful_set}.yaml "$files/store/"
cp config/console/{service_account,service,network_policy,deployment}.yaml "$files/console/"
cp config/mcp/{service_account,rbac,service,network_policy,deployment}.yaml "$files/mcp/"
