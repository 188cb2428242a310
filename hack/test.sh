#!/usr/bin/env bash
# Runs all tests, or with the argument "unit" those that need neither an API server nor a cluster.
#
# Everything is built and compiled before the first test starts. The end-to-end tests run on the local cluster: one that
# runs already stays up, one that is started here is taken down at the end, also after a failure or a signal.
source "$(dirname "$0")/lib.sh"

mode=${1:-all}
[[ $mode == all || $mode == unit ]] || die "unknown argument $mode: leave it out, or say unit"

say "building gotestsum"
tool gotestsum gotest.tools/gotestsum
source hack/stages.sh

started=
cleanup() {
  [[ -z $started ]] || stage cluster-down go -C hack/cluster run . down
}

# The race detector needs a C compiler, and cgo.
race=(-race)
if ! command -v "$(go env CC)" >/dev/null; then
  say "no C compiler ($(go env CC)) is here: tests run without the race detector"
  race=()
fi
flags=(-count=1 "${race[@]}" -shuffle=on -timeout=20m)
plain=(-count=1 -shuffle=on -timeout=20m)

# on_cluster are the packages whose tests need a cluster.
on_cluster=(./test/docs ./test/e2e ./test/faults ./test/install)
# without_race are packages that start no goroutines. The race detector makes their tests five times as long.
without_race=(./internal/guards ./internal/runner/redact)
# in_browser are those that need a browser besides an API server.
in_browser=(./test/console)

# compile puts tests and all that they import into Go's build cache.
compile() {
  local module=$1
  shift
  [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
  counted go -C "$module" list -v -test -deps -export "$@"
}

compile_all() {
  compile . "${race[@]}" ./...
  compile . "${without_race[@]}"
  compile hack "${race[@]}" ./...
  compile hack/cluster "${race[@]}" ./...
  compile hack/cluster/modules/provisioner ./...
  compile hack/images/store ./...
  # The tests of the store start this server.
  counted go -C hack/images/store build -v -o "$PWD/bin/test/store" .
  compile hack/release ./...
  # A test makes releases for this architecture, too.
  GOARCH=arm64 counted go list -v -deps -export ./cmd/...
  GOARCH=arm64 counted go -C hack/images/store list -v -deps -export .
  [[ $mode == unit ]] || compile . "${on_cluster[@]}"
}

# unit_tests runs those of packages of the main module, and all of the other modules.
unit_tests() {
  tests unit . pkgname "${flags[@]}" "$@" || true
  tests unit-without-race . pkgname "${plain[@]}" "${without_race[@]}" || true
  tests unit-hack hack pkgname "${flags[@]}" ./... || true
  tests unit-cluster hack/cluster pkgname "${flags[@]}" ./... || true
  tests unit-provisioner hack/cluster/modules/provisioner pkgname "${plain[@]}" ./... || true
  tests unit-store hack/images/store pkgname "${plain[@]}" ./... || true
  tests unit-release hack/release pkgname "${plain[@]}" ./... || true
}

# with_api lists the packages with tests against an API server.
with_api() {
  git grep --untracked -l KUBEBUILDER_ASSETS -- '*_test.go' "${on_cluster[@]/#.\//:!}" "${in_browser[@]/#.\//:!}" ':!hack' | xargs -r -n1 dirname | sort -u | sed 's|^|./|'
}

# packages lists all but those of the arguments, which begin with ./.
packages() {
  go list -f '{{.ImportPath}}' ./... | grep -vxF -f <(printf 'toolcall.dev/operator/%s\n' "${@#./}")
}

if [[ $mode == unit ]]; then
  unset KUBEBUILDER_ASSETS
  stage compile compile_all || exit
  mapfile -t unit < <(packages "${without_race[@]}")
  unit_tests "${unit[@]}"
  exit
fi

stage programs hack/test-programs.sh || exit
stage compile compile_all || exit
mapfile -t api < <(with_api)
mapfile -t unit < <(packages ./test/e2e ./test/install "${in_browser[@]}" "${api[@]}" "${without_race[@]}")
unit_tests "${unit[@]}"

KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS
[[ ${#api[@]} == 0 ]] || tests api-server . pkgname "${flags[@]}" "${api[@]}" || true
tests console . testname "${flags[@]}" "${in_browser[@]}" || true
# The oldest Kubernetes that the operator runs on: what the API server takes of the manifests, the Jobs and the identities, and an
# upgrade to the newest. Its API server takes minutes to build the first time.
if stage assets-1.33 go -C hack/cluster run . assets --version 1.33; then
  newest=$KUBEBUILDER_ASSETS
  KUBEBUILDER_ASSETS=$(cluster assets --version 1.33) TOOLCALL_NEWER_ASSETS=$newest \
    tests api-server-1.33 . pkgname "${flags[@]}" ./test/api ./test/namespaces ./internal/jobspec ./internal/operator || true
fi

cluster status >/dev/null 2>&1 || started=yes
stage cluster-up go -C hack/cluster run . up || exit
KUBECONFIG=$(cluster kubeconfig)
export KUBECONFIG
stage tool-image make -s load-tools || exit
stage deploy make -s deploy || exit
stage deploy-mcp make -s deploy-mcp || exit
stage deploy-console make -s deploy-console || exit

# More tests at once than there are processors: a call mostly waits for its pod. What works one way works the others; tests to which the
# way makes no difference run cold only.
for way in cold session; do
  TOOLCALL_E2E=1 TOOLCALL_E2E_WAY=$way tests "end-to-end-$way" . testname -count=1 -parallel=6 -timeout=15m ./test/e2e || true
done
# For a pod that waits, and for a runner in the image, only the start of a pod and what its process has differ. What pools do is
# tested in the cold way.
for way in warm image; do
  TOOLCALL_E2E=1 TOOLCALL_E2E_WAY=$way tests "end-to-end-$way" . testname -count=1 -parallel=6 -timeout=15m -run \
    '^Test(Arguments|Background|Calls|Cancel|Code|Command|Environment|ExitCodes|LargeOutput|Network|NoReadable|Nothing|OutOfMemory|Output|Pod|Secrets|Signals|Source|StandardInput|Streams|TimeLimit|Working)' \
    ./test/e2e || true
done
# The client libraries: what needs no cluster, and the scenarios that both run.
for language in typescript python; do
  TOOLCALL_SCENARIOS=1 stage "client-$language" "clients/$language/test.sh" || true
done
# The pages' commands and manifests, the samples, and the example programs.
TOOLCALL_E2E=1 tests documentation . testname -count=1 -timeout=20m ./test/docs || true
# The fault tests that say most in little time, with fewer kills; `make test-faults` runs all. The end-to-end tests kill the operator, too.
TOOLCALL_FAULTS=1 tests faults . testname -short -count=1 -timeout=30m \
  -run '^Test(SessionsOperatorKilledAgainAndAgain|OutputOperatorKilled)$' ./test/faults || true
# Last: it removes the operator and puts it back.
TOOLCALL_E2E=1 tests install . testname -count=1 -timeout=15m ./test/install || true
