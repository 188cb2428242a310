#!/usr/bin/env bash
# Measures what the operator costs by the number of finished calls, and what a runner costs; without a cluster.
source "$(dirname "$0")/lib.sh"

KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS TOOLCALL_MEASURE=1
exec go test -count=1 -timeout=20m -v "$@" ./test/reliability
