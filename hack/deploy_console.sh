#!/usr/bin/env bash
# Builds the console's image, loads it onto the cluster, as deploy.sh does, and installs the console beside the operator.
#
# For another cluster, push the image to a registry, set CONSOLE_IMAGE to its name, and create the Secret with the
# certificate; docs/console.md says how.
source "$(dirname "$0")/lib.sh"
use_cluster

namespace=toolcall-system
secret=toolcall-console-tls

if [[ -z ${CONSOLE_IMAGE:-} ]]; then
  [[ $(cluster_type) != other ]] || die "set CONSOLE_IMAGE to an image that this cluster can pull; docs/console.md says how to build and push it"
  mkdir -p bin/images
  # The tag is a hash of the program, as in deploy.sh.
  tag=$(sha256sum bin/console | cut -c1-12)
  tar=$PWD/bin/images/console-$tag.tar
  CONSOLE_IMAGE=toolcall.dev/console:$tag
  if [[ ! -e $tar ]]; then
    say "building image $CONSOLE_IMAGE"
    rm -f bin/images/console-*.tar
    go -C hack run ./images binary --tag "$CONSOLE_IMAGE" --entrypoint /console --file "$PWD/bin/console:/console" "$tar.tmp" >/dev/null
    mv "$tar.tmp" "$tar"
  fi
  say "loading image $CONSOLE_IMAGE"
  load_image "$tar"
fi

"$KUBECTL" get namespace "$namespace" >/dev/null 2>&1 || die "the operator isn't installed: run 'make deploy' first"

if ! "$KUBECTL" -n "$namespace" get secret "$secret" >/dev/null 2>&1; then
  [[ $(cluster_type) != other ]] || die "Secret $secret in namespace $namespace is missing: create it from the server's certificate with 'kubectl create secret tls', or with cert-manager"
  say "creating a self-signed certificate: clients on this machine find its authority in Secret $secret"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cluster certificate "$folder" toolcall-console toolcall-console.$namespace toolcall-console.$namespace.svc localhost 127.0.0.1
  "$KUBECTL" -n "$namespace" create secret tls "$secret" --cert="$folder/tls.crt" --key="$folder/tls.key" >/dev/null
fi

say "installing the console"
"$KUBECTL" kustomize config/console | sed "s|toolcall.dev/console:dev|$CONSOLE_IMAGE|" |
  "$KUBECTL" apply --server-side --force-conflicts -f - | sed 's/^/  /' >&2
say "waiting for the console"
if ! "$KUBECTL" -n "$namespace" rollout status deployment/toolcall-console --timeout=120s >&2; then
  "$KUBECTL" -n "$namespace" get pods -l app.kubernetes.io/name=toolcall-console -o wide >&2 || true
  "$KUBECTL" -n "$namespace" logs -l app.kubernetes.io/name=toolcall-console --prefix --tail=30 >&2 || true
  die "the console didn't become ready"
fi
