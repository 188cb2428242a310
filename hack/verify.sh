#!/usr/bin/env bash
# Fails when a generated file is out of date, when a file isn't formatted or a module isn't tidy, and on each finding of
# the linter, which .golangci.yml configures.
source "$(dirname "$0")/lib.sh"

step() { say "verify: $*"; }

generated() {
  find api config charts docs/reference internal/result/zz_generated.reasons.go internal/console/static/reasons.json \
    clients/python/src/toolcall/_reasons.py clients/typescript/src/reasons.ts -type f -print0 | sort -z | xargs -0 sha256sum
}

step "generated files"
before=$(generated)
hack/generate.sh
[[ $before == "$(generated)" ]] || die "generated files were out of date: run 'make generate' and commit"

step "format"
unformatted=$(gofmt -l api cmd config controllers hack internal test)
[[ -z $unformatted ]] || die "not formatted: $unformatted: run gofmt -w"

step "modules"
modules=(. hack hack/cluster hack/cluster/modules/provisioner hack/collector hack/images/store hack/release)
for dir in "${modules[@]}" hack/tools hack/tools/lint hack/tools/manifests hack/tools/chart; do
  (cd "$dir" && go mod tidy -diff) || die "go.mod of $dir is not tidy: run 'go mod tidy' there"
done

step "building the linter, unless it is built (minutes)"
tool golangci-lint sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter lint
for dir in "${modules[@]}"; do
  step "lint $dir"
  (cd "$dir" && "$OLDPWD/bin/golangci-lint" run ./...)
done

step "shell scripts"
git ls-files '*.sh' .ci/run | while read -r script; do bash -n "$script"; done
say "verify: all good"
