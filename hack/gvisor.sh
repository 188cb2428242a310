#!/usr/bin/env bash
# Runs the tests of kernel isolation under gVisor, which it builds: those of the runner in a sandbox on this machine, and calls on the
# local cluster, whose node it starts with gVisor as a second runtime. A cluster that it started is taken down at the end.
source "$(dirname "$0")/lib.sh"

[[ $EUID -eq 0 ]] || die "run it as root: it makes sandboxes, and starts the local cluster"
export TOOLCALL_CLUSTER_GVISOR=1
runsc=$(cluster program runsc)

work=$(mktemp -d)
started=
finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  rm -rf "$work"
  [[ -z $started ]] || make -s cluster-down || status=1
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "the runner's tests, in a sandbox"
go test -vet=off -c -o "$work/runner.test" ./internal/runner
"$runsc" --platform=systrap --network=none --ignore-cgroups do -cwd "$PWD/internal/runner" \
  sh -c 'chmod 1777 /dev/shm && exec "$0" -test.v -test.run "In(Every|Any)Way"' "$work/runner.test" |
  grep -E '^ *(---|[a-z_]+_test\.go|panic|PASS|FAIL)'

# gVisor's shim for containerd gives itself an OOM score of -999.
if ! grep -qE '^CapEff:.*[13579bdf][0-9a-f]{6}$' <(grep CapEff /proc/self/status); then
  say "calls on the local cluster: skipped, since gVisor's shim needs CAP_SYS_RESOURCE, which this machine doesn't give"
  exit 0
fi
make -s cluster-status >/dev/null 2>&1 || started=yes
make -s cluster-up
make -s deploy
hack/test_one.sh ./test/e2e GVisor
