#!/usr/bin/env bash
# Pushes the images of the release in dist/ (or DIST) to REGISTRY, tagged with VERSION. Credentials come from
# ~/.docker/config.json.
source "$(dirname "$0")/lib.sh"

dist=${DIST:-$PWD/dist}
[[ -n ${VERSION:-} && -n ${REGISTRY:-} ]] || die "set VERSION and REGISTRY as for the release, as in: make push VERSION=v1.2.3 REGISTRY=registry.example.com/team"
[[ -d $dist/images ]] || die "there is no release in $dist: run 'make release VERSION=$VERSION REGISTRY=$REGISTRY'"
grep -q "$REGISTRY/toolcall-manager:$VERSION@" "$dist/install.yaml" ||
  die "the release in $dist isn't $VERSION for $REGISTRY: see its install.yaml"
for layout in "$dist"/images/*; do
  name=$REGISTRY/toolcall-$(basename "$layout"):$VERSION
  say "pushing $name"
  go -C hack run ./images push --from "$layout" "$name"
done
