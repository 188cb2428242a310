#!/usr/bin/env bash
# Builds the image that sample calls run in, builds the same image with the runner in it, and loads both onto the local
# node.
source "$(dirname "$0")/lib.sh"

tools=$(go -C hack run ./images tool)
with_runner=$PWD/bin/images/$(basename "$tools" .tar)-$(sha256sum bin/runner | cut -c1-12).tar
if [[ ! -e $with_runner ]]; then
  mkdir -p bin/images
  rm -f bin/images/tool-*.tar
  go -C hack run ./images extend --from "$tools" --tag toolcall.dev/tools-with-runner:dev \
    --file "$PWD/bin/runner:/usr/local/bin/toolcall-runner" "$with_runner" >/dev/null
fi
cluster load "$tools" >&2
cluster load "$with_runner" >&2
