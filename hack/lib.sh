# Functions that the scripts in hack/ share. Source it; it changes to the root of the project.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# tool NAME PACKAGE [MODULE] builds a program of hack/tools, or of a module below it, into bin/; the version is pinned there.
tool() {
  mkdir -p bin
  counted go -C "hack/tools/${3:-}" build -v -o "$PWD/bin/$1" "$2"
}

# counted runs a go command with -v, and prints a line for every hundred packages that it compiles. It drops the command's
# standard output.
counted() {
  "$@" 2>&1 >/dev/null | awk '
    / / && !/\.test\]$/ { print; fflush(); next } # A download or an error.
    NF && ++n % 100 == 0 { print "  compiled " n " packages"; fflush() }' >&2
}

cluster() { go -C hack/cluster run . "$@"; }

# use_cluster sets KUBECTL, and KUBECONFIG to the local cluster unless it names another.
use_cluster() {
  local assets
  if [[ -z ${KUBECONFIG:-} ]]; then
    KUBECONFIG=$(cluster kubeconfig) || die "no cluster: run 'make cluster-up', or set KUBECONFIG to the cluster to use"
    export KUBECONFIG
  fi
  if command -v kubectl >/dev/null; then
    KUBECTL=kubectl
  else
    assets=$(cluster assets)
    KUBECTL=$assets/kubectl
  fi
  "$KUBECTL" version >/dev/null 2>&1 || die "the cluster of $KUBECONFIG doesn't answer: is it running? ('make cluster-status' for the local one)"
}

# is_local says whether the cluster in use is the local one.
is_local() { [[ ${KUBECONFIG:-} == "$(cluster kubeconfig 2>/dev/null)" ]]; }
