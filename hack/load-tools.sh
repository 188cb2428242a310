#!/usr/bin/env bash
# Builds the image that sample calls run in, builds the same image with the runner in it, and loads both onto the
# cluster, as deploy.sh does.
source "$(dirname "$0")/lib.sh"
use_cluster

tools=$(go -C hack run ./images tool)
with_runner=$PWD/bin/images/$(basename "$tools" .tar)-$(sha256sum bin/runner | cut -c1-12).tar
if [[ ! -e $with_runner ]]; then
  mkdir -p bin/images
  rm -f bin/images/tool-*.tar
  go -C hack run ./images extend --from "$tools" --tag toolcall.dev/tools-with-runner:dev \
    --file "$PWD/bin/runner:/usr/local/bin/toolcall-runner" "$with_runner" >/dev/null
fi
load_image "$tools" "$with_runner"
