#!/usr/bin/env bash
# Removes what deploy.sh installed, and with the kinds all their objects; waits until nothing is left that the
# operator made. Running it twice is fine.
source "$(dirname "$0")/lib.sh"
use_cluster

ours=app.kubernetes.io/managed-by=toolcall-operator

# made lists what the operator made: it and its kinds must be gone before that is.
made() {
  "$KUBECTL" get jobs.batch,pods,secrets,networkpolicies.networking.k8s.io --all-namespaces --ignore-not-found -o name -l "$ours"
}

# Calls first, while the operator can still stop what runs; then environments, whose pools it takes away.
for kind in toolcalls executionenvironments; do
  if "$KUBECTL" get crd "$kind.toolcall.dev" >/dev/null 2>&1; then
    say "deleting all $kind"
    "$KUBECTL" delete "$kind.toolcall.dev" --all --all-namespaces --wait --timeout=120s >&2
  fi
done
say "removing the MCP server and the operator"
"$KUBECTL" kustomize config/mcp | "$KUBECTL" delete --ignore-not-found --wait --timeout=60s -f - | sed 's/^/  /' >&2
for ((tries = 6; ; tries--)); do
  if "$KUBECTL" kustomize config/default | "$KUBECTL" delete --ignore-not-found --wait --timeout=40s -f - | sed 's/^/  /' >&2; then
    break
  fi
  ((tries > 0)) || die "the API server does not let go of what is listed above"
  # A kind that it began to serve a moment ago it may fail to remove, and tries again at growing intervals: at once
  # when the kind changes.
  say "still there; trying again"
  mapfile -t kinds < <("$KUBECTL" get crd -o name | grep '\.toolcall\.dev$')
  [[ ${#kinds[@]} == 0 ]] || "$KUBECTL" annotate --overwrite "${kinds[@]}" "toolcall.dev/removal-tried=$tries" >&2 || true
done
# An installation for some namespaces has a Role in each.
"$KUBECTL" delete rolebindings,roles --all-namespaces --field-selector metadata.name=toolcall-operator-namespaced --ignore-not-found | sed 's/^/  /' >&2
# Pods that wait for calls, if no operator has taken them away; and what Kubernetes' garbage collector had not yet learned
# to be without its owner when the owner's kind went.
orphans=(jobs.batch,networkpolicies.networking.k8s.io --all-namespaces -l "$ours")
if [[ -n $("$KUBECTL" get "${orphans[@]}" --ignore-not-found -o name) ]]; then
  say "removing what is left of calls and environments"
  "$KUBECTL" delete "${orphans[@]}" --ignore-not-found --wait=false | sed 's/^/  /' >&2
fi
# The garbage collector follows, within seconds.
for ((tries = 60; ; tries--)); do
  left=$(made)
  [[ -n $left ]] || break
  ((tries > 0)) || die "this was left behind: $left"
  sleep 1
done
