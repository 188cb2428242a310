#!/usr/bin/env bash
# Builds the kubectl plugin's archives into bin/krew, and the krew manifest that goes with them.
#
# usage: hack/krew.sh VERSION URL [PLATFORM...]    e.g. hack/krew.sh v1.2.3 https://example.com/releases/v1.2.3
#
# URL is where users will download the archives. DOCS_URL is where the files of docs are published, if they are. Without PLATFORM (os_arch) it builds for all that the manifest names, and
# only then writes the manifest.
source "$(dirname "$0")/lib.sh"

[[ $# -ge 2 ]] || die "usage: hack/krew.sh VERSION URL [PLATFORM...]"
version=$1 url=$2
shift 2
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "VERSION $version: write it as v1.2.3"
[[ $url =~ ^https://[^[:space:]@\|]+$ ]] || die "URL $url: krew takes https addresses only"

template=config/krew/toolcall.yaml
mapfile -t all < <(sed -n 's/.*os: \([a-z0-9]*\), arch: \([a-z0-9]*\).*/\1_\2/p' "$template")
platforms=("${@:-${all[@]}}")
out=$PWD/bin/krew
mkdir -p "$out"

edits=(-e "s|@URL@|$url|g" -e "s|@VERSION@|$version|g")
for platform in "${platforms[@]}"; do
  [[ " ${all[*]} " == *" $platform "* ]] || die "platform $platform isn't in $template: choose from ${all[*]}"
  say "building for $platform"
  work=$(mktemp -d)
  GOOS=${platform%_*} GOARCH=${platform#*_} CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X toolcall.dev/operator/internal/version.release=$version -X toolcall.dev/operator/internal/docurl.base=${DOCS_URL:-}" -o "$work/" ./cmd/kubectl-toolcall
  archive=$out/kubectl-toolcall_${version}_$platform.tar.gz
  # The same sources make the same archive.
  tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | gzip -n >"$archive"
  rm -r "$work"
  edits+=(-e "s|@SHA256_${platform^^}@|$(sha256sum "$archive" | cut -d' ' -f1)|")
done
[[ ${#platforms[@]} == "${#all[@]}" ]] || exit 0
sed "${edits[@]}" "$template" >"$out/toolcall.yaml"
say "wrote $out/toolcall.yaml"
