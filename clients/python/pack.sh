#!/usr/bin/env bash
# Packs the Python client: writes its source distribution and its wheel of a version into a folder.
#
# usage: pack.sh VERSION FOLDER   (VERSION as in 1.2.3)
#
# It needs Debian's packages python3-build and python3-hatchling and no package index: the build runs without isolation.
# SOURCE_DATE_EPOCH dates the files in both, so that the same source makes the same bytes; without it, that is the date of the last
# commit.
set -euo pipefail
[[ $# == 2 ]] || { echo "usage: pack.sh VERSION FOLDER" >&2; exit 2; }
version=$1
mkdir -p "$2"
to=$(cd "$2" && pwd)
cd "$(dirname "$0")"
umask 022
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
fi
export SOURCE_DATE_EPOCH

# What is packed is a copy: a build leaves folders beside the sources.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -R pyproject.toml README.md LICENSE src "$copy"
sed -i "s/^version = .*/version = \"$version\"/" "$copy/pyproject.toml"
find "$copy" -name __pycache__ -prune -exec rm -rf {} +
# Debian's hatchling names a dependency that only editable installations have.
(cd "$copy" && /usr/bin/python3 -m build --no-isolation --skip-dependency-check --outdir "$copy/out" . >&2)
cp "$copy"/out/* "$to"
ls "$to"/toolcall-*
