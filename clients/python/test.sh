#!/usr/bin/env bash
# Runs the tests of the Python client: those without a cluster always, the scenarios when TOOLCALL_SCENARIOS=1, with KUBECONFIG
# of an administrator. With TOOLCALL_FULL=1 it checks the types and the packages too, runs all tests on the cluster, and the
# scenarios twice, with Toolcall and with AsyncToolcall.
#
# usage: ./test.sh [MODULE...]   (modules of tests, as tests.test_scenarios; all without one)
#
# It uses Debian's Python and installs the Debian packages that are missing; with TOOLCALL_NO_INSTALL=1 it only names them.
set -euo pipefail
cd "$(dirname "$0")"
python=/usr/bin/python3

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# debian PACKAGE COMMAND... installs a package unless the command, which needs it, works.
debian() {
  local package=$1 install=(apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$1")
  shift
  ! "$@" >/dev/null 2>&1 || return 0
  [[ ${TOOLCALL_NO_INSTALL:-} != 1 ]] || die "the Debian package $package is missing: run 'apt-get install $package', or unset TOOLCALL_NO_INSTALL"
  echo "installing the Debian package $package" >&2
  "${install[@]}" >/dev/null || { apt-get update >/dev/null && "${install[@]}" >/dev/null; } || die "can't install $package"
}

debian python3 "$python" --version
debian python3-kubernetes "$python" -c 'import kubernetes'
debian python3-yaml "$python" -c 'import yaml'
if [[ ${TOOLCALL_FULL:-} == 1 ]]; then
  debian mypy "$python" -c 'import mypy'
  # The types of PyYAML are there.
  debian python3-typeshed test -e /usr/lib/python3/dist-packages/yaml-stubs
  debian python3-build "$python" -c 'import build'
  debian python3-hatchling "$python" -c 'import hatchling'
  debian python3-venv "$python" -c 'import ensurepip'
  debian twine twine --version
  "$python" -m mypy src tests examples bench.py
else
  echo "the types aren't checked: make test-full does it" >&2
fi
if [[ ${TOOLCALL_SCENARIOS:-} == 1 ]]; then
  [[ -n ${KUBECONFIG:-} ]] || die "set KUBECONFIG to an administrator's kubeconfig of the cluster to test on"
fi
export PYTHONPATH=$PWD/src
(($# > 0)) || set -- discover -s tests -t .
"$python" -m unittest "$@" -v
if [[ ${TOOLCALL_SCENARIOS:-} == 1 && ${TOOLCALL_FULL:-} == 1 ]]; then
  TOOLCALL_ASYNC=1 "$python" -m unittest -v tests.test_scenarios
fi
