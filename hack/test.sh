#!/usr/bin/env bash
# Runs the tests: all of them, or with the argument "unit" those that need neither an API server nor a cluster.
#
# The end-to-end tests run on the local cluster. One that runs already stays up; one that is started here is
# taken down again, also when something fails or a signal comes.
source "$(dirname "$0")/lib.sh"

mode=${1:-all}
[[ $mode == all || $mode == unit ]] || die "unknown argument $mode: leave it out, or say unit"

logs=$PWD/bin/test-logs
rm -rf "$logs"
mkdir -p "$logs"
go -C hack build -o "$PWD/bin/testsum" ./testsum

started=
stage_pid=
failed=

# stage runs a command under a name. It waits in a way that lets a signal through at once.
stage() {
  local name=$1 status=0
  shift
  bin/testsum -logs "$logs" -stage "$name" "$@" &
  stage_pid=$!
  wait "$stage_pid" || status=$?
  stage_pid=
  [[ $status == 0 ]] || failed=yes
  return "$status"
}

# tests runs go test in a module's folder, as a stage.
tests() {
  local name=$1 module=$2
  shift 2
  stage "$name" -tests -- go -C "$module" test -json "$@"
}

finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  if [[ -n $stage_pid ]]; then
    kill -TERM "$stage_pid" 2>/dev/null || true
    wait "$stage_pid" || true
  fi
  if [[ -n $started ]]; then
    stage cluster-down -- go -C hack/cluster run . down || true
  fi
  bin/testsum -logs "$logs" -summary || status=1
  [[ -z $failed || $status != 0 ]] || status=1
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The race detector needs a C compiler.
race=(-race)
if ! command -v "$(go env CC)" >/dev/null; then
  say "no C compiler ($(go env CC)) is here: tests run without the race detector"
  race=()
fi
flags=(-count=1 "${race[@]}" -shuffle=on -timeout=20m)

# with_api are the packages with tests against an API server.
with_api() {
  git grep --untracked -l KUBEBUILDER_ASSETS -- '*_test.go' ':!test/e2e' ':!test/install' ':!test/docs' ':!hack' | xargs -r -n1 dirname | sort -u | sed 's|^|./|'
}

if [[ $mode == unit ]]; then
  unset KUBEBUILDER_ASSETS
  tests unit . "${flags[@]}" ./... || true
  tests unit-hack hack "${flags[@]}" ./... || true
  tests unit-cluster hack/cluster "${flags[@]}" ./... || true
  tests unit-release hack/release -count=1 -shuffle=on -timeout=20m ./... || true
  exit
fi

mapfile -t api < <(with_api)
mapfile -t unit < <(go list -f '{{.ImportPath}}' ./... | grep -vxF -f <(printf '%s\n' toolcall.dev/operator/test/{e2e,install} "${api[@]/#.\//toolcall.dev/operator/}"))
tests unit . "${flags[@]}" "${unit[@]}" || true
tests unit-hack hack "${flags[@]}" ./... || true
tests unit-cluster hack/cluster "${flags[@]}" ./... || true
tests unit-release hack/release -count=1 -shuffle=on -timeout=20m ./... || true

if stage programs -- go -C hack/cluster run . assets; then
  KUBEBUILDER_ASSETS=$(cluster assets)
  export KUBEBUILDER_ASSETS
  [[ ${#api[@]} == 0 ]] || tests api-server . "${flags[@]}" "${api[@]}" || true
fi

cluster status >/dev/null 2>&1 || started=yes
stage cluster-up -- go -C hack/cluster run . up || exit
KUBECONFIG=$(cluster kubeconfig)
export KUBECONFIG
stage tool-image -- make -s load-tools || exit
stage deploy -- make -s deploy || exit
stage deploy-mcp -- make -s deploy-mcp || exit
# More at once than there are processors: a call mostly waits for its pod.
# Everything that works one way works the others.
for way in cold image warm; do
  TOOLCALL_E2E=1 TOOLCALL_E2E_WAY=$way tests "end-to-end-$way" . -count=1 -parallel=6 -timeout=15m ./test/e2e || true
done
# The pages' commands and manifests, the samples, and the example programs.
TOOLCALL_E2E=1 tests documentation . -count=1 -timeout=20m ./test/docs || true
# Those of the fault tests that say most in little time; `make test-faults` runs all.
TOOLCALL_FAULTS=1 tests faults . -count=1 -timeout=20m -run '^Test(OperatorKilledTwentyTimes|LeaderKilled|LeaderDeleted|EtcdKilled)$' ./test/faults || true
# Last: it takes the operator away, and puts it back.
TOOLCALL_E2E=1 tests install . -count=1 -timeout=15m ./test/install || true
