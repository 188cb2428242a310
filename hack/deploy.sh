#!/usr/bin/env bash
# Builds the operator's two images, loads them onto the cluster and installs the operator. The cluster is the local one, or one
# of kind, minikube or k3d, which the name of the kubeconfig's current context tells.
#
# For another cluster, push the images to a registry and set MANAGER_IMAGE and RUNNER_IMAGE to their names.
# KUSTOMIZATION is another folder to install than config/default. On the local cluster an output store is installed, too.
source "$(dirname "$0")/lib.sh"
use_cluster
slow=${TOOLCALL_CLUSTER_SLOW:-1}

for name in manager runner; do
  variable=${name^^}_IMAGE
  [[ -z ${!variable:-} ]] || continue
  [[ $(cluster_type) != other ]] || die "set MANAGER_IMAGE and RUNNER_IMAGE to images that this cluster can pull; docs/install.md says how to build and push them"
  load_program "$name"
  printf -v "$variable" '%s' "$image"
done

store=
if is_local; then
  # Before the operator, which reads the store's credentials when it starts.
  "$KUBECTL" apply --server-side --force-conflicts -f config/manager/namespace.yaml -f config/manager/priority.yaml | sed 's/^/  /' >&2
  hack/deploy_store.sh
  store="s|^\\( *\\)- --runner-image=.*|&\\n\\1- '--output-store=s3://toolcall?endpoint=http://toolcall-store.toolcall-system.svc:9000'|"
fi

say "installing the operator"
"$KUBECTL" kustomize "${KUSTOMIZATION:-config/default}" |
  sed -e "s|toolcall.dev/manager:dev|$MANAGER_IMAGE|; s|toolcall.dev/runner:dev|$RUNNER_IMAGE|" -e "$store" |
  only_served | "$KUBECTL" apply --server-side --force-conflicts -f - | sed 's/^/  /' >&2
"$KUBECTL" wait --for=condition=Established --timeout=$((60 * slow))s \
  crd/toolcalls.toolcall.dev crd/toolcallapprovals.toolcall.dev crd/toolsessions.toolcall.dev crd/executionenvironments.toolcall.dev crd/executionpolicies.toolcall.dev crd/skills.toolcall.dev crd/toolbudgets.toolcall.dev crd/tools.toolcall.dev >/dev/null
rollout deployment/toolcall-operator $((180 * slow)) "the operator"

if [[ -n $("$KUBECTL" get apiservices.apiregistration.k8s.io v1alpha1.subresources.toolcall.dev --ignore-not-found -o name) ]]; then
  say "waiting until the API server reaches the output of calls"
  "$KUBECTL" wait --for=condition=Available --timeout=$((120 * slow))s apiservices.apiregistration.k8s.io/v1alpha1.subresources.toolcall.dev >/dev/null
fi

# Admission of the API server can lag behind a new kind by some seconds.
say "waiting until calls are admitted"
probe() {
  "$KUBECTL" create --dry-run=server -o name -f - <<'YAML' >/dev/null
apiVersion: toolcall.dev/v1alpha1
kind: ToolCall
metadata:
  name: probe
  namespace: toolcall-system
spec:
  structured:
    binary: "true"
YAML
}
stamped=no
if stamps; then
  stamped=yes
fi
# admitted says whether the probe is admitted, or refused for the only reason that there is without a stamp.
admitted() {
  local said
  said=$(probe 2>&1) || { [[ $stamped == no && $said == *"spec.requestedBy must be the user of the request"* ]]; }
}
for ((tries = 60; ; tries--)); do
  if admitted && admitted; then
    break
  fi
  ((tries > 0)) || { probe; die "the API server doesn't admit calls"; }
  sleep 1
done
