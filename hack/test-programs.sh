#!/usr/bin/env bash
# Builds what tests start, so that no test builds anything and no test's time limit covers a build: the project's
# programs into bin/, others into bin/test/, the local node's programs into the cache.
#
# Node.js packages go into bin/test/node/. With TOOLCALL_FULL=1 it also gets what the tests need that only `make test-full` runs:
# a browser, Prometheus, the OpenTelemetry collector, the packages of the examples, what packs the clients, and an image of network clients.
#
# It installs the Debian packages that tests need; with TOOLCALL_NO_INSTALL=1 it only names the missing ones.
source "$(dirname "$0")/lib.sh"

# debian PACKAGE COMMAND... installs a package unless the command, which needs it, works.
debian() {
  local package=$1 install=(apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$1")
  shift
  ! "$@" >/dev/null 2>&1 || return 0
  [[ ${TOOLCALL_NO_INSTALL:-} != 1 ]] || die "the Debian package $package is missing: run 'apt-get install $package', or unset TOOLCALL_NO_INSTALL"
  say "installing the Debian package $package"
  "${install[@]}" >/dev/null || { apt-get update >/dev/null && "${install[@]}" >/dev/null; } || die "can't install $package"
}

# unpack PACKAGE PROGRAM... puts programs of a Debian package into bin/test/, unless this machine has them. The package isn't
# installed: that could start a server.
unpack() {
  local package=$1 program found dir missing=
  shift
  for program; do
    [[ ! -x bin/test/$program ]] || continue
    if found=$(command -v "$program"); then ln -sf "$found" "bin/test/$program"; else missing=yes; fi
  done
  [[ -n $missing ]] || return 0
  [[ ${TOOLCALL_NO_INSTALL:-} != 1 ]] || die "the programs $* are missing: run 'apt-get install $package', or unset TOOLCALL_NO_INSTALL"
  say "fetching the Debian package $package"
  dir=$(mktemp -d)
  (
    cd "$dir"
    apt-get download "$package" >/dev/null 2>&1 || { apt-get update >/dev/null && apt-get download "$package" >/dev/null; }
    dpkg-deb -x ./*.deb .
  ) || die "can't fetch $package"
  for program; do mv -f "$dir/usr/bin/$program" bin/test/; done
  rm -rf "$dir"
}

# node_at_least VERSION PROGRAMS fails where the machine's Node.js is older than the programs need.
node_at_least() {
  (($(node -p 'Number.parseInt(process.versions.node)') >= $1)) || die "node is $(node --version): $2 need $1 or newer"
}

# node_packages NAME FOLDER installs what a folder's package-lock.json lists into bin/test/node/NAME, unless it is there.
node_packages() {
  local to=bin/test/node/$1
  cmp -s "$2/package-lock.json" "$to/.installed" && return
  say "installing the Node.js packages of $2"
  rm -rf "$to"
  mkdir -p "$to"
  cp "$2/package.json" "$2/package-lock.json" "$to"
  npm --prefix "$to" ci --ignore-scripts --no-audit --no-fund >&2
  cp "$2/package-lock.json" "$to/.installed"
}

# clients_image makes an image of network clients: the tool image with kubectl for programs of Go, Node.js with npm, Java, and a
# program with the C library musl.
clients_image() {
  local to=bin/test/clients npm=10.9.4 source=test/e2e/testdata/fetch.c node libatomic tools from
  tools=$(bin/test/images tool)
  from="$tools $npm $(sha256sum <"$source")"
  [[ $(cat "$to.from" 2>/dev/null) != "$from" ]] || return 0
  say "building the image of network clients"
  rm -rf "$to"
  mkdir -p "$to"
  npm --prefix "$to" install --ignore-scripts --no-audit --no-fund "npm@$npm" >&2
  jlink --add-modules java.base,java.net.http,jdk.compiler,jdk.crypto.ec --strip-debug --no-header-files --no-man-pages --output "$to/java"
  musl-gcc -static -Os -o "$to/fetch" "$source"
  node=$(echo bin/test/node/node/node_modules/node-linux-*/bin/node)
  libatomic=$(ldd "$node" | awk '$1 == "libatomic.so.1" { print $3 }')
  bin/test/images binary --from "$tools" --tag toolcall.dev/clients:dev \
    --file "$(cluster assets)/kubectl:/usr/local/bin/kubectl" --file "$node:/usr/local/bin/node" --file "$libatomic:/usr/lib/libatomic.so.1" \
    --file "$to/node_modules/npm:/opt/npm" --file "$to/java:/opt/java" --file "$to/fetch:/usr/local/bin/musl-fetch" "$to.tar" >/dev/null
  rm -rf "$to"
  echo "$from" >"$to.from"
}

say "building the programs that tests start"
mkdir -p bin/test
hack/build.sh
counted go -C hack/cluster build -v -o "$PWD/bin/test/cluster" .
counted go -C hack build -v -o "$PWD/bin/test/images" ./images
counted go -C hack/release build -v -o "$PWD/bin/test/" . helm.sh/helm/v4/cmd/helm
cluster build

# For the tests of the runner: attacks, network clients, a program of many names.
debian gcc gcc --version
debian musl-tools musl-gcc --version
debian busybox busybox true
# For the client in Python and its scenarios.
debian python3-kubernetes /usr/bin/python3 -c 'import kubernetes'
debian python3-yaml /usr/bin/python3 -c 'import yaml'
# For the client in TypeScript, and the MCP clients of test/e2e.
debian npm npm --version
node_at_least 18 "the MCP clients of the tests"
node_packages mcp test/e2e/mcp

[[ ${TOOLCALL_FULL:-} == 1 ]] || exit 0
node_at_least 20 "the packages of test/e2e/mcp/agents"

# For what is exported to OpenTelemetry.
counted go -C hack/collector build -v -o "$PWD/bin/test/collector" .
# For test/monitoring.
unpack prometheus prometheus promtool
# For test/console.
debian chromium chromium --version
node_packages axe test/console/axe
# For the agent of test/e2e whose framework isn't ours.
node_packages mcp-agents test/e2e/mcp/agents
# For the examples of the documentation in TypeScript.
node_packages node test/docs/testdata/node
node_packages typescript docs/examples/typescript
node_packages langchain docs/examples/langchain
# For the conformance test of the MCP server.
node_packages conformance test/mcp
# For the types and the packages of the client in Python.
debian mypy /usr/bin/python3 -c 'import mypy'
debian python3-typeshed test -e /usr/lib/python3/dist-packages/yaml-stubs
debian python3-build /usr/bin/python3 -c 'import build'
debian python3-hatchling /usr/bin/python3 -c 'import hatchling'
debian python3-venv /usr/bin/python3 -c 'import ensurepip'
debian twine twine --version
# For the network clients of test/e2e.
debian openjdk-17-jdk-headless jlink --version
debian libatomic1 grep -q libatomic.so.1 /etc/ld.so.cache
clients_image
