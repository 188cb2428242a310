#!/usr/bin/env bash
# Builds the image of a server, loads it onto the cluster, as deploy.sh does, and installs the server beside the operator:
# deploy_server.sh mcp "the MCP server", or console "the console".
#
# For another cluster, push the image to a registry, set MCP_IMAGE or CONSOLE_IMAGE to its name, and create the Secret with
# the server's certificate; docs/install.md says how.
source "$(dirname "$0")/lib.sh"

[[ $# == 2 ]] || die "say which server, and what to call it: mcp 'the MCP server', or console 'the console'"
name=$1 title=$2
namespace=toolcall-system
deployment=toolcall-$name
secret=$deployment-tls
variable=${name^^}_IMAGE
image=${!variable:-}
use_cluster

if [[ -z $image ]]; then
  [[ $(cluster_type) != other ]] || die "set $variable to an image that this cluster can pull; docs/install.md says how to build and push it"
  load_program "$name"
fi

"$KUBECTL" get namespace "$namespace" >/dev/null 2>&1 || die "the operator isn't installed: run 'make deploy' first"

if ! "$KUBECTL" -n "$namespace" get secret "$secret" >/dev/null 2>&1; then
  [[ $(cluster_type) != other ]] || die "Secret $secret in namespace $namespace is missing: create it from the server's certificate with 'kubectl create secret tls', or with cert-manager"
  say "creating a self-signed certificate: clients on this machine find its authority in Secret $secret"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cluster certificate "$folder" "$deployment" "$deployment.$namespace" "$deployment.$namespace.svc" localhost 127.0.0.1
  "$KUBECTL" -n "$namespace" create secret tls "$secret" --cert="$folder/tls.crt" --key="$folder/tls.key" >/dev/null
fi

change="s|toolcall.dev/$name:dev|$image|"
minor=$("$KUBECTL" get --raw /version | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p')
# The MCP server acts for its callers by constrained impersonation.
[[ $minor -ge 36 ]] || change+='; s|--token-file=.*|--pass-tokens|'

say "installing $title"
"$KUBECTL" kustomize "config/$name" | sed "$change" |
  "$KUBECTL" apply --server-side --force-conflicts -f - | sed 's/^/  /' >&2
rollout "deployment/$deployment" 120 "$title"
