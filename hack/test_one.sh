#!/usr/bin/env bash
# Runs tests of one package, with what they need: test_one.sh PACKAGE PATTERN [ARGUMENT...]. It builds as `make test` builds, so that
# only what has changed is compiled. Tests of test/e2e, test/docs, test/install and test/faults run on the current cluster, with the
# operator that is installed there.
source "$(dirname "$0")/lib.sh"

[[ -n ${1:-} && -n ${2:-} ]] || die "say which test: make test-one PACKAGE=./test/e2e TEST=TestName"
package=./${1#./} pattern=$2
shift 2
case ${package%/} in
  ./test/faults) exec hack/faults.sh -run "$pattern" "$@" ;;
  ./test/e2e | ./test/docs | ./test/install)
    use_cluster
    make -s load-tools
    hack/test-programs.sh
    export TOOLCALL_E2E=1
    ;;
esac
KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS
exec go test -vet=off -count=1 -v -run "$pattern" "$@" "$package"
