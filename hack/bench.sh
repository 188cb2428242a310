#!/usr/bin/env bash
# Runs a command of test/bench: calls (on the current cluster) or operator (without a cluster). Flags go to it, also from
# BENCH_ARGS: BENCH_ARGS='-n 100' make bench. 'go run ./test/bench calls -h' lists them. BENCH_ARGS='-only sessions' make
# bench measures that part alone.
source "$(dirname "$0")/lib.sh"

[[ $# -gt 0 ]] || die "name a command: hack/bench.sh calls or operator"
command=$1
args=()
if [[ $command == calls ]]; then
  use_cluster
  "$KUBECTL" -n toolcall-system rollout status deployment/toolcall-operator --timeout=60s >/dev/null ||
    die "the operator is not running on this cluster: run 'make deploy'"
  if is_local; then
    make -s load-tools
    # The kubectl of the cluster's own version.
    args+=(-kubectl "$(cluster assets)/kubectl")
  fi
else
  KUBEBUILDER_ASSETS=$(cluster assets)
  export KUBEBUILDER_ASSETS
fi
read -ra more <<<"${BENCH_ARGS:-}"
go run ./test/bench "$command" "${args[@]}" "${@:2}" "${more[@]}"
