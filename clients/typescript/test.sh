#!/usr/bin/env bash
# Installs what the package-lock.json files list, compiles the client and its adapters, and runs their tests: those of pure
# functions always, those that need a cluster with TOOLCALL_SCENARIOS=1 and KUBECONFIG of an administrator.
#
# usage: ./test.sh [PATTERN...]   (patterns of the names of tests)
#
# The newest @kubernetes/client-node needs Node.js 22.19. Where node is older, the tests run with a newer node from npm, and
# from Node.js 20.11 on also with node and version 1 of @kubernetes/client-node.
set -euo pipefail
cd "$(dirname "$0")"

packages=(. adapters/deepagents adapters/langchain)
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

# run NODE [FLAG] runs the tests of all packages; those of the client on a cluster are in the variable "cluster".
run() {
  echo "# Node.js $("$1" --version) ${2:-}" >&2
  "$@" --test --test-concurrency=1 --test-reporter=spec "${patterns[@]}" \
    build/test/unit/*.test.js "${cluster[@]}" adapters/*/build/adapters/*/test/*.test.js
}

for package in "${packages[@]}"; do
  install "$package"
  compile "$package"
done

# is_node MAJOR MINOR says whether node is as new as that.
is_node() {
  node -e 'const [a, b] = process.versions.node.split(".").map(Number), [x, y] = process.argv.slice(1).map(Number); process.exit(a > x || (a === x && b >= y) ? 0 : 1)' "$@"
}

if is_node 22 19; then
  cluster=(build/test/cluster/*.test.js)
  run node
else
  # Debian 12 has Node.js 18, for which there is no client.
  # The scenarios, and what broken connections do, are the same there.
  cluster=(build/test/cluster/client.test.js)
  ! is_node 20 11 || run node --import="$PWD/test/client-node-1.mjs"
  install test/node
  cluster=(build/test/cluster/*.test.js)
  run "$(echo test/node/node_modules/node-linux-*/bin/node)"
fi
