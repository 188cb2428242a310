#!/usr/bin/env bash
# Runs a command of test/bench: calls (on the current cluster), operator or footprint (both without a
# cluster). Flags go to it, also from BENCH_ARGS: BENCH_ARGS='-n 100' make bench. 'go run ./test/bench calls -h' lists
# them. BENCH_ARGS='-only sessions' make bench measures sessions alone, and -session-parts some of that.
source "$(dirname "$0")/lib.sh"

[[ $# -gt 0 ]] || die "name a command: hack/bench.sh calls, operator or footprint"
command=$1
args=()
if [[ $command == calls ]]; then
  use_cluster
  "$KUBECTL" -n toolcall-system rollout status deployment/toolcall-operator --timeout=60s >/dev/null ||
    die "the operator is not running on this cluster: run 'make deploy'"
  if is_local; then
    make -s load-tools build
    # The audit log is there when the cluster was started with TOOLCALL_CLUSTER_AUDIT=1.
    audit=$(dirname "$KUBECONFIG")/logs/audit.log
    [[ ! -e $audit ]] || args+=(-audit-log "$audit")
    # The kubectl of the cluster's own version.
    args+=(-kubectl "$(cluster assets)/kubectl")
  fi
else
  KUBEBUILDER_ASSETS=$(cluster assets)
  export KUBEBUILDER_ASSETS
fi
read -ra more <<<"${BENCH_ARGS:-}"
go run ./test/bench "$command" "${args[@]}" "${more[@]}" "${@:2}"
