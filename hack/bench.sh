#!/usr/bin/env bash
# Measures calls beside bare Pods and Jobs on the current cluster, and draws the figures. Flags go to the program, also
# from BENCH_ARGS: BENCH_ARGS='-n 100' make bench. 'go run ./test/bench -h' lists them.
source "$(dirname "$0")/lib.sh"
use_cluster

"$KUBECTL" -n toolcall-system rollout status deployment/toolcall-operator --timeout=60s >/dev/null ||
  die "the operator is not running on this cluster: run 'make deploy'"
args=()
if is_local; then
  make -s load-tools
  # The audit log is there when the cluster was started with TOOLCALL_CLUSTER_AUDIT=1.
  audit=$(dirname "$KUBECONFIG")/logs/audit.log
  [[ ! -e $audit ]] || args+=(-audit-log "$audit")
fi
read -ra more <<<"${BENCH_ARGS:-}"
go run ./test/bench "${args[@]}" "${more[@]}" "$@"
# Flags may have the figures written elsewhere, or nowhere.
if [[ " ${more[*]} $* " != *" -json"* ]]; then
  go -C hack run ./benchplot -in "$PWD/bin/bench.json" -out "$PWD/bin/bench.png"
  say "bench: all figures are in bin/bench.json, a plot is in bin/bench.png"
fi
