#!/usr/bin/env bash
# Makes a release in dist/ (DIST): images, manifests, chart, kubectl plugin, bills of materials, checksums.
#
# VERSION (v1.2.3) and REGISTRY, where the images will be pulled from, are required. Nothing is pushed.
source "$(dirname "$0")/lib.sh"

[[ -n ${VERSION:-} ]] || die "set VERSION, as in: make release VERSION=v1.2.3 REGISTRY=registry.example.com/team"
[[ -n ${REGISTRY:-} ]] || die "set REGISTRY to where the images will be pulled from, as in REGISTRY=registry.example.com/team"
commit=$(git rev-parse HEAD)
if [[ -n $(git status --porcelain) ]]; then
  say "warning: the checkout has changes that aren't committed; the release says so"
  commit+=+changes
fi
exec go -C hack/release run . -source "$PWD" -out "${DIST:-$PWD/dist}" -version "$VERSION" -registry "$REGISTRY" -commit "$commit" \
  -source-url "${SOURCE_URL:-}" -licenses "${LICENSES:-}" -download-url "${DOWNLOAD_URL:-}" -architectures "${ARCHITECTURES-amd64 arm64}" \
  -plugin-platforms "${PLUGIN_PLATFORMS-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"
