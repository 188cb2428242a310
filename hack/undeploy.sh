#!/usr/bin/env bash
# Uninstalls what deploy.sh installed, deletes all objects of its kinds, and waits until everything that the operator
# created is gone. Running it twice does no harm.
source "$(dirname "$0")/lib.sh"
use_cluster

ours=app.kubernetes.io/managed-by=toolcall-operator

# created lists what the operator created.
created() {
  "$KUBECTL" get jobs.batch,pods,secrets,networkpolicies.networking.k8s.io --all-namespaces --ignore-not-found -o name -l "$ours"
}

# Without the operator it answers nothing, and then no namespace of the cluster can be deleted.
"$KUBECTL" delete apiservices.apiregistration.k8s.io v1alpha1.subresources.toolcall.dev --ignore-not-found | sed 's/^/  /' >&2

# The operator stops running calls, ends sessions and removes pools, so these go before it.
for kind in toolcalls toolsessions executionenvironments; do
  if "$KUBECTL" get crd "$kind.toolcall.dev" >/dev/null 2>&1; then
    say "deleting all $kind"
    "$KUBECTL" delete "$kind.toolcall.dev" --all --all-namespaces --wait --timeout=120s >&2
  fi
done
say "removing the console, the MCP server, the output store and the operator"
for beside in console mcp store; do
  "$KUBECTL" kustomize "config/$beside" | "$KUBECTL" delete --ignore-not-found --wait --timeout=60s -f - | sed 's/^/  /' >&2
done
"$KUBECTL" -n toolcall-system delete secret toolcall-store --ignore-not-found | sed 's/^/  /' >&2
for ((tries = 6; ; tries--)); do
  if "$KUBECTL" kustomize config/default | only_served | "$KUBECTL" delete --ignore-not-found --wait --timeout=40s -f - | sed 's/^/  /' >&2; then
    break
  fi
  ((tries > 0)) || die "the API server doesn't remove what is listed above"
  # The API server may fail to remove a kind that is only seconds old. It retries at growing intervals, and at once
  # when the kind changes.
  say "still there; trying again"
  mapfile -t kinds < <("$KUBECTL" get crd -o name | grep '\.toolcall\.dev$')
  [[ ${#kinds[@]} == 0 ]] || "$KUBECTL" annotate --overwrite "${kinds[@]}" "toolcall.dev/removal-tried=$tries" >&2 || true
done
# An installation for some namespaces has a Role in each.
"$KUBECTL" delete rolebindings,roles --all-namespaces --field-selector metadata.name=toolcall-operator-namespaced --ignore-not-found | sed 's/^/  /' >&2
# What no operator was there to remove, and what the garbage collector lost track of when its owner's kind went.
orphans=(jobs.batch,networkpolicies.networking.k8s.io --all-namespaces -l "$ours")
if [[ -n $("$KUBECTL" get "${orphans[@]}" --ignore-not-found -o name) ]]; then
  say "removing the rest of calls and environments"
  "$KUBECTL" delete "${orphans[@]}" --ignore-not-found --wait=false | sed 's/^/  /' >&2
fi
# The garbage collector removes the rest within seconds.
for ((tries = 60; ; tries--)); do
  left=$(created)
  [[ -n $left ]] || break
  ((tries > 0)) || die "this was left behind: $left"
  sleep 1
done
