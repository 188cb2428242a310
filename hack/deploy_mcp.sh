#!/usr/bin/env bash
# Builds the MCP server's image, loads it onto the cluster, as deploy.sh does, and installs the server beside the operator.
#
# For another cluster, push the image to a registry, set MCP_IMAGE to its name, and create the Secret with the server's
# certificate; docs/mcp.md says how.
source "$(dirname "$0")/lib.sh"
use_cluster

namespace=toolcall-system
secret=toolcall-mcp-tls

if [[ -z ${MCP_IMAGE:-} ]]; then
  [[ $(cluster_type) != other ]] || die "set MCP_IMAGE to an image that this cluster can pull; docs/mcp.md says how to build and push it"
  mkdir -p bin/images
  # The tag is a hash of the program, as in deploy.sh.
  tag=$(sha256sum bin/mcp | cut -c1-12)
  tar=$PWD/bin/images/mcp-$tag.tar
  MCP_IMAGE=toolcall.dev/mcp:$tag
  if [[ ! -e $tar ]]; then
    say "building image $MCP_IMAGE"
    rm -f bin/images/mcp-*.tar
    go -C hack run ./images binary --tag "$MCP_IMAGE" --entrypoint /mcp --file "$PWD/bin/mcp:/mcp" "$tar.tmp" >/dev/null
    mv "$tar.tmp" "$tar"
  fi
  say "loading image $MCP_IMAGE"
  load_image "$tar"
fi

"$KUBECTL" get namespace "$namespace" >/dev/null 2>&1 || die "the operator isn't installed: run 'make deploy' first"

if ! "$KUBECTL" -n "$namespace" get secret "$secret" >/dev/null 2>&1; then
  [[ $(cluster_type) != other ]] || die "Secret $secret in namespace $namespace is missing: create it from the server's certificate with 'kubectl create secret tls', or with cert-manager"
  say "creating a self-signed certificate: clients on this machine find its authority in Secret $secret"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cluster certificate "$folder" toolcall-mcp toolcall-mcp.$namespace toolcall-mcp.$namespace.svc localhost 127.0.0.1
  "$KUBECTL" -n "$namespace" create secret tls "$secret" --cert="$folder/tls.crt" --key="$folder/tls.key" >/dev/null
fi

say "installing the MCP server"
"$KUBECTL" kustomize config/mcp | sed "s|toolcall.dev/mcp:dev|$MCP_IMAGE|" |
  "$KUBECTL" apply --server-side --force-conflicts -f - | sed 's/^/  /' >&2
say "waiting for the MCP server"
if ! "$KUBECTL" -n "$namespace" rollout status deployment/toolcall-mcp --timeout=120s >&2; then
  "$KUBECTL" -n "$namespace" get pods -l app.kubernetes.io/name=toolcall-mcp -o wide >&2 || true
  "$KUBECTL" -n "$namespace" logs -l app.kubernetes.io/name=toolcall-mcp --prefix --tail=30 >&2 || true
  die "the MCP server didn't become ready"
fi
