#!/usr/bin/env bash
# Builds a release in dist/ (or DIST): images, manifests, chart, kubectl plugin, client libraries, bills of materials, checksums. It pushes
# nothing.
#
# VERSION, as in v1.2.3, and REGISTRY, which users will pull the images from, are required.
source "$(dirname "$0")/lib.sh"

[[ -n ${VERSION:-} ]] || die "set VERSION, as in: make release VERSION=v1.2.3 REGISTRY=registry.example.com/team"
[[ -n ${REGISTRY:-} ]] || die "set REGISTRY, which users will pull the images from, as in REGISTRY=registry.example.com/team"
commit=$(git rev-parse HEAD)
if [[ -n $(git status --porcelain) ]]; then
  say "warning: the checkout has uncommitted changes; the release's commit is marked with +changes"
  commit+=+changes
fi
exec go -C hack/release run . -source "$PWD" -out "${DIST:-$PWD/dist}" -version "$VERSION" -registry "$REGISTRY" -commit "$commit" \
  -source-url "${SOURCE_URL:-https://toolcall.dev/operator}" -docs-url "${DOCS_URL:-}" -licenses "${LICENSES:-Apache-2.0}" -download-url "${DOWNLOAD_URL:-}" -architectures "${ARCHITECTURES-amd64 arm64}" \
  -clients "${CLIENTS-python typescript}" \
  -plugin-platforms "${PLUGIN_PLATFORMS-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"
