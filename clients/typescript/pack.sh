#!/usr/bin/env bash
# Packs the TypeScript client and its adapters as npm packages of a version, into a folder.
#
# usage: pack.sh VERSION FOLDER   (VERSION as in 1.2.3)
#
# It needs npm, and a registry for the compiler and the types. The same source and version give the same bytes.
set -euo pipefail
[[ $# == 2 ]] || { echo "usage: pack.sh VERSION FOLDER" >&2; exit 2; }
version=$1
mkdir -p "$2"
to=$(cd "$2" && pwd)
cd "$(dirname "$0")"
umask 022

# What is packed is a copy: packing compiles, and writes the version into the package.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -cf - --exclude=node_modules --exclude=dist --exclude=build . | tar -xf - -C "$copy"

for package in . adapters/*; do
  cd "$copy/$package"
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  node -e '
    const { readFileSync, writeFileSync } = require("node:fs");
    const version = process.argv[1], own = JSON.parse(readFileSync("package.json", "utf8"));
    own.version = version;
    if (own.peerDependencies) own.peerDependencies["@toolcall/client"] = `^${version}`;
    writeFileSync("package.json", JSON.stringify(own, null, 2) + "\n");' "$version"
  npm pack --pack-destination "$to" --loglevel=error
done
