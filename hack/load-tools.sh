#!/usr/bin/env bash
# Builds the image that sample calls run in, the same image with the runner in it, and one that has bash and a few of the
# coreutils only, and loads them onto the cluster, as deploy.sh does. With the argument "build", it prints their archives instead.
source "$(dirname "$0")/lib.sh"
[[ ${1:-} == build ]] || use_cluster

tools=$(go -C hack run ./images tool)
with_runner=$PWD/bin/images/$(basename "$tools" .tar)-$(sha256sum bin/runner | cut -c1-12).tar
if [[ ! -e $with_runner ]]; then
  mkdir -p bin/images
  rm -f bin/images/tool-*.tar
  go -C hack run ./images binary --from "$tools" --tag toolcall.dev/tools-with-runner:dev \
    --file "$PWD/bin/runner:/usr/local/bin/toolcall-runner" "$with_runner" >/dev/null
fi
# This machine's programs, each with the libraries that it loads.
programs=(/bin/bash /bin/cat /bin/ls /usr/bin/head /usr/bin/sort /usr/bin/wc)
mapfile -t needed < <({ printf '%s\n' "${programs[@]}"; ldd "${programs[@]}" | awk '$NF ~ /^\(0x/ && $(NF-1) ~ /^\// { print $(NF-1) }'; } | sort -u)
shell=$PWD/bin/images/shell-$(cat "${needed[@]}" | sha256sum | cut -c1-12).tar
if [[ ! -e $shell ]]; then
  mkdir -p bin/images
  rm -f bin/images/shell-*.tar
  mapfile -t files < <(for file in "${needed[@]}"; do printf '%s\n' --file "$file:$file"; done)
  go -C hack run ./images binary --tag toolcall.dev/shell:dev --entrypoint /bin/bash "${files[@]}" "$shell" >/dev/null
fi
if [[ ${1:-} == build ]]; then
  printf '%s\n' "$tools" "$with_runner" "$shell"
  exit
fi
load_image "$tools" "$with_runner" "$shell"
