#!/usr/bin/env bash
# Installs what the package-lock.json files list, compiles the client, and runs the tests of its pure functions.
# With TOOLCALL_FULL=1 it does so with the adapters too, and also runs the tests that need a cluster, with TOOLCALL_SCENARIOS=1 and
# KUBECONFIG of an administrator.
#
# usage: ./test.sh [PATTERN...]   (patterns of the names of tests)
#
# The tests run with the lowest Node.js that package.json names, which npm installs. With TOOLCALL_FULL=1, those without a cluster also run
# with the machine's own, where that is newer.
set -euo pipefail
cd "$(dirname "$0")"

full=${TOOLCALL_FULL:-}
packages=(.)
[[ $full != 1 ]] || packages+=(adapters/*)
patterns=()
for name in "$@"; do patterns+=("--test-name-pattern=$name"); done

install() {
  npm --prefix "$1" ci --ignore-scripts --no-audit --no-fund --loglevel=error
}

# compile FOLDER builds the package in dist/, and it with its tests in build/.
compile() {
  rm -rf "$1/dist" "$1/build"
  npm --prefix "$1" run --silent build
  (cd "$1" && npx --no-install tsc)
}

# run NODE runs the tests without a cluster, and those of the files in the variable "cluster".
run() {
  echo "# Node.js $("$1" --version)" >&2
  "$1" --test --test-concurrency=1 --test-reporter=spec "${patterns[@]}" build/test/unit/*.test.js "${cluster[@]}"
}

for package in "${packages[@]}"; do
  install "$package"
  compile "$package"
done

install test/node
if [[ $full == 1 ]]; then
  install examples/others
  npm --prefix examples/others run --silent check
fi
lowest=$(echo test/node/node_modules/node-linux-*/bin/node)
cluster=()
if [[ $full != 1 ]]; then
  echo "# the adapters and the tests on a cluster: make test-full runs them" >&2
  run "$lowest"
  exit
fi
cluster=(build/test/packages/*.test.js build/test/cluster/*.test.js adapters/*/build/adapters/*/test/*.test.js)
run "$lowest"
cluster=()
if [[ $(printf '%s\n' "$("$lowest" --version)" "$(node --version)" | sort -V | tail -n 1) != "$("$lowest" --version)" ]]; then
  run node
fi
