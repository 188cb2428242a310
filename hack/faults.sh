#!/usr/bin/env bash
# Breaks things under the operator on the local cluster while calls are in flight, and shows what came of them.
# Arguments go to `go test`, also from FAULTS_ARGS: FAULTS_ARGS='-run TestEtcdKilled' make test-faults.
source "$(dirname "$0")/lib.sh"
use_cluster
is_local || die "the fault tests break the cluster that they run on, and only work on the local one: unset KUBECONFIG (it is $KUBECONFIG)"

"$KUBECTL" -n toolcall-system rollout status deployment/toolcall-operator --timeout=60s >/dev/null ||
  die "the operator is not running on this cluster: run 'make deploy'"
tar=$(go -C hack run ./images tool)
cluster load "$tar" >&2
go -C hack/cluster build -o "$PWD/bin/test/cluster" .
export TOOLCALL_FAULTS=1 TOOLCALL_FAULTS_REPORT=${TOOLCALL_FAULTS_REPORT:-$PWD/bin/faults.json}
read -ra more <<<"${FAULTS_ARGS:-}"
go test -count=1 -timeout=40m -v "${more[@]}" "$@" ./test/faults
say "the summary is in $TOOLCALL_FAULTS_REPORT too"
