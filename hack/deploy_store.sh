#!/usr/bin/env bash
# Builds the output store's image, loads it onto the cluster, as deploy.sh does, and installs the store beside the operator.
#
# For another cluster, push the image to a registry and set STORE_IMAGE to its name. Where the operator is given a bucket
# that is there already, none of this is needed.
source "$(dirname "$0")/lib.sh"
use_cluster

namespace=toolcall-system
secret=toolcall-store

# The local node reserves the size of the claim on its disk.
size=
! is_local || size='s|^\( *storage:\) .*|\1 2Gi|'

if [[ -z ${STORE_IMAGE:-} ]]; then
  [[ $(cluster_type) != other ]] || die "set STORE_IMAGE to an image that this cluster can pull, or give the operator a bucket that is there already"
  hack/build_store.sh
  load_program store
  STORE_IMAGE=$image
fi

"$KUBECTL" get namespace "$namespace" >/dev/null 2>&1 || die "the namespace $namespace is missing: install the operator first"

# random prints as many random letters and digits.
random() { head -c 256 /dev/urandom | base64 -w0 | tr -dc A-Za-z0-9 | cut -c"1-$1"; }

if ! "$KUBECTL" -n "$namespace" get secret "$secret" >/dev/null 2>&1; then
  say "creating the store's credentials in Secret $secret"
  # Not as arguments, which everybody on this machine can see.
  "$KUBECTL" -n "$namespace" create secret generic "$secret" \
    --from-env-file=<(printf 'AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=%s\n' "$(random 20)" "$(random 40)") >/dev/null
fi

say "installing the output store"
"$KUBECTL" kustomize config/store | sed -e "s|toolcall.dev/store:dev|$STORE_IMAGE|" -e "$size" |
  "$KUBECTL" apply --server-side --force-conflicts -f - | sed 's/^/  /' >&2
rollout statefulset/toolcall-store $((180 * ${TOOLCALL_CLUSTER_SLOW:-1})) "the output store"
