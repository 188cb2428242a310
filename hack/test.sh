#!/usr/bin/env bash
# Runs the tests. Without an argument: each promise once at the lowest level that shows it, and once on the local cluster. What Go's
# test cache has an answer for isn't run again. With the argument "full": everything there is, shuffled, with the race detector, and
# nothing from the cache; it takes hours. With the argument "unit": what needs neither an API server nor a cluster.
#
# Everything is built and compiled before the test that needs it starts. The tests that need no cluster come first; beside the local
# cluster run only short ones, because what starts API servers fails there for want of processors. A cluster that runs already stays up,
# one that is started here is taken down at the end, also after a failure or a signal.
source "$(dirname "$0")/lib.sh"

mode=${1:-default}
[[ $mode == default || $mode == full || $mode == unit ]] || die "unknown argument $mode: leave it out, or say full or unit"

say "building gotestsum"
tool gotestsum gotest.tools/gotestsum
source hack/stages.sh

started=
cleanup() {
  [[ -z $started ]] || cluster down || true
}

# on_cluster are the packages whose tests need a cluster; in_full those that only full runs, with the programs that they need.
on_cluster=(./test/docs ./test/e2e ./test/faults ./test/install)
in_full=(./test/console ./test/monitoring)
# raced are the packages whose goroutines share most memory. Those of controllers run with the race detector in full: it would compile
# twice as many packages for them, and their tests take up to five times as long.
raced=(./internal/dispatch/... ./internal/host/... ./internal/queue/... ./internal/runner/shim/... ./internal/supervisor/... ./internal/trigger/...)
# without_race are packages of pure functions alone, whose tests take longest with the race detector.
without_race=(./internal/guards ./internal/runner/redact)
# longest are the packages whose tests take longest. They start first, so that none is waited for alone.
longest=(./internal/runner ./controllers/toolcall ./internal/mcpserver ./internal/subresources ./controllers/toolsession ./internal/runner/sandbox ./test/api
  ./internal/output/store)

flags=(-vet=off -timeout=20m) # The linter vets.
short=(-short)
if [[ $mode == full ]]; then
  export TOOLCALL_FULL=1
  flags+=(-timeout=60m -count=1 -shuffle=on)
  raced=(./...)
  short=()
fi
race=(-race)
# The race detector needs a C compiler, and cgo.
if ! command -v "$(go env CC)" >/dev/null; then
  say "no C compiler ($(go env CC)) is here: tests run without the race detector"
  race=()
fi

# packages_of PATTERN... lists packages of the main module, as go list does.
packages_of() { go list "$@" | sed 's|^toolcall.dev/operator|.|' | sort; }

# elsewhere lists what other stages run.
elsewhere() { packages_of "${on_cluster[@]}"; [[ $mode != default ]] || packages_of "${in_full[@]}"; [[ $mode != full ]] || packages_of ./test/console; }

mapfile -t with_race < <(comm -23 <(packages_of "${raced[@]}") <({ elsewhere; packages_of "${without_race[@]}"; } | sort))
mapfile -t plain < <(comm -23 <(packages_of ./...) <({ elsewhere; printf '%s\n' "${with_race[@]}"; } | sort))
[[ $mode == full ]] || mapfile -t plain < <({ printf '%s\n' "${longest[@]}" "${plain[@]}"; } | awk '!seen[$0]++')

# compile puts tests and all that they import into Go's build cache.
compile() {
  local module=$1
  shift
  [[ " $* " != *" -race "* ]] || local -x CGO_ENABLED=1
  counted go -C "$module" list -v -test -deps -export "$@"
}

compile_all() {
  compile . "${plain[@]}" "${on_cluster[@]}"
  compile hack ./...
  compile hack/cluster ./...
  compile hack/cluster/modules/provisioner ./...
  compile hack/images/store ./...
  compile hack/release ./...
  [[ $mode != full ]] || {
    # The test of releases makes them for this architecture, too.
    GOARCH=arm64 counted go list -v -deps -export ./cmd/...
    GOARCH=arm64 counted go -C hack/images/store list -v -deps -export .
  }
  compile . "${race[@]}" "${with_race[@]}"
}

# modules tests the other Go modules. Their tests start scripts and builds, which Go's test cache doesn't see.
modules() {
  local module
  for module in hack hack/cluster hack/cluster/modules/provisioner hack/images/store hack/release; do
    tests "unit-${module##*/}" "$module" pkgname "${flags[@]}" "${short[@]}" -count=1 ./... || true
  done
}

# plain_tests and short_tests are all that need no cluster. Those against an API server are skipped without KUBEBUILDER_ASSETS. Many wait,
# so that one package more than there are processors runs at a time.
plain_tests() {
  stage compile compile_all || return
  tests unit . pkgname "${flags[@]}" -p=$(($(nproc) + 1)) "${plain[@]}" || true
}
short_tests() {
  tests unit-race . pkgname "${flags[@]}" "${race[@]}" "${with_race[@]}" || true
  modules
}
# clients tests the client libraries; with TOOLCALL_SCENARIOS=1 on the cluster, too.
clients() {
  local language
  for language in python typescript; do
    stage "client-$language" "clients/$language/test.sh" || true
  done
}
unit_stages=(compile unit unit-race unit-hack unit-cluster unit-provisioner unit-store unit-release)

if [[ $mode == unit ]]; then
  plan=("${unit_stages[@]}")
  unset KUBEBUILDER_ASSETS
  plain_tests
  short_tests
  exit
fi

# older_api_server VERSION tests what the API server of another version takes of the manifests, the Jobs and the identities, and
# an upgrade from it to the newest. It takes minutes to build the first time.
older_api_server() {
  local version=$1 newest=$KUBEBUILDER_ASSETS
  stage "assets-$version" go -C hack/cluster run . assets --version "$version" || return
  selected "api-server-$version" || return 0
  KUBEBUILDER_ASSETS=$(cluster assets --version "$version") TOOLCALL_NEWER_ASSETS=$newest \
    tests "api-server-$version" . pkgname "${flags[@]}" ./test/api ./test/namespaces ./internal/jobspec ./internal/operator || true
}

# deploy_all installs the operator, the MCP server and the console on a node that is ready, with the images that tests use.
deploy_all() {
  make -s load-tools
  make -s deploy
  make -s deploy-mcp
  make -s deploy-console
}

# on_node runs a stage of tests on the cluster. What a cluster answers isn't for Go's cache.
on_node() {
  local name=$1
  shift
  TOOLCALL_E2E=1 tests "$name" . testname -vet=off -count=1 "$@" || true
}

plan=(programs "${unit_stages[@]}" client-python client-typescript cluster-up deploy end-to-end scenarios documentation faults)
[[ $mode == default ]] || plan=(programs "${unit_stages[@]}" manifests console assets-1.33 api-server-1.33 assets-1.36 api-server-1.36 cluster-up deploy
  end-to-end client-python client-typescript documentation faults install mutations)

stage programs hack/test-programs.sh || exit
KUBEBUILDER_ASSETS=$(cluster assets)
export KUBEBUILDER_ASSETS
plain_tests
if [[ $mode == full ]]; then
  # One stage at a time: with the race detector there is no processor time left.
  short_tests
  stage manifests hack/lint_manifests.sh || true
  tests console . testname "${flags[@]}" ./test/console || true
  older_api_server 1.33
  older_api_server 1.36
else
  lane short_tests
  lane clients
fi

selected cluster-up || { await_lanes; exit; }
cluster status >/dev/null 2>&1 || started=yes
stage cluster-up go -C hack/cluster run . up || exit
KUBECONFIG=$(cluster kubeconfig)
export KUBECONFIG
stage deploy deploy_all || exit
# More tests at once than there are processors: a call mostly waits for its pod.
on_node end-to-end -parallel=6 -timeout=60m ./test/e2e
if [[ $mode == full ]]; then
  TOOLCALL_SCENARIOS=1 clients
else
  # By itself: some scenarios kill the operator.
  TOOLCALL_SCENARIOS=1 stage scenarios clients/python/test.sh tests.test_scenarios || true
fi
# The pages' commands and manifests, the samples, and the example programs.
on_node documentation -timeout=60m ./test/docs
if [[ $mode == full ]]; then
  TOOLCALL_FAULTS=1 on_node faults -timeout=120m ./test/faults
  # Last on the cluster: it removes the operator and puts it back.
  on_node install -timeout=15m ./test/install
  stage mutations test/mutations/run.sh || true
else
  # The fault test that says most in little time, with fewer kills. The end-to-end tests kill the operator, too.
  TOOLCALL_FAULTS=1 on_node faults -short -timeout=30m '-run=^TestSessionsOperatorKilledAgainAndAgain$' ./test/faults
fi
await_lanes
