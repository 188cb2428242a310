#!/usr/bin/env bash
# Removes what deploy.sh installed, and with the kinds all their objects. Running it twice is fine.
source "$(dirname "$0")/lib.sh"
use_cluster

# Calls first, while the operator can still stop what runs.
if "$KUBECTL" get crd toolcalls.toolcall.dev >/dev/null 2>&1; then
  say "deleting all calls"
  "$KUBECTL" delete toolcalls.toolcall.dev --all --all-namespaces --wait --timeout=120s >&2
fi
say "removing the MCP server and the operator"
"$KUBECTL" kustomize config/mcp | "$KUBECTL" delete --ignore-not-found --wait --timeout=60s -f - | sed 's/^/  /' >&2
"$KUBECTL" kustomize config/default | "$KUBECTL" delete --ignore-not-found --wait --timeout=120s -f - | sed 's/^/  /' >&2
