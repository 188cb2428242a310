#!/usr/bin/env bash
# Measures the operator alone: the real manager against a real API server, without a node. Flags go to the program, also
# from BENCH_ARGS. 'go run ./test/operatorbench -h' lists them.
source "$(dirname "$0")/lib.sh"

KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS
read -ra more <<<"${BENCH_ARGS:-}"
exec go run ./test/operatorbench "${more[@]}" "$@"
