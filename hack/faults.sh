#!/usr/bin/env bash
# Injects faults on the local cluster while calls are in flight, and reports the results. Arguments and FAULTS_ARGS go to
# `go test`: FAULTS_ARGS='-run TestEtcdKilled' make test-faults; '-run TestSessions' runs those with sessions.
source "$(dirname "$0")/lib.sh"
use_cluster
is_local || die "fault tests break the cluster that they run on, so they only run on the local one: unset KUBECONFIG (it is $KUBECONFIG)"

"$KUBECTL" -n toolcall-system rollout status deployment/toolcall-operator --timeout=60s >/dev/null ||
  die "the operator isn't running on this cluster: run 'make deploy'"
tar=$(go -C hack run ./images tool)
cluster load "$tar" >&2
go -C hack/cluster build -o "$PWD/bin/test/cluster" .
export TOOLCALL_FAULTS=1 TOOLCALL_FAULTS_REPORT=${TOOLCALL_FAULTS_REPORT:-$PWD/bin/faults.json}
read -ra more <<<"${FAULTS_ARGS:-}"
go test -count=1 -timeout=90m -v "${more[@]}" "$@" ./test/faults
say "the results are also in $TOOLCALL_FAULTS_REPORT"
