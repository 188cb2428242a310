#!/usr/bin/env bash
# Fails when something that is generated, formatted or tidied isn't, and when vet or the linter object.
source "$(dirname "$0")/lib.sh"

step() { say "verify: $*"; }

step "generated files"
before=$(git ls-files -z -- api config charts docs/reference | xargs -0 sha256sum)
hack/generate.sh
after=$(git ls-files -z -- api config charts docs/reference | xargs -0 sha256sum)
[[ $before == "$after" ]] || die "generated files were out of date: run 'make generate' and commit"

step "format"
unformatted=$(git ls-files '*.go' | xargs gofmt -l)
[[ -z $unformatted ]] || die "not formatted: $unformatted: run gofmt -w"

step "modules"
for dir in . hack hack/cluster hack/release hack/tools; do
  (cd "$dir" && go mod tidy -diff) || die "go.mod of $dir is not tidy: run 'go mod tidy' there"
done

step "vet"
go vet ./...
go -C hack vet ./...
go -C hack/cluster vet ./...
go -C hack/release vet ./...

step "staticcheck"
mkdir -p bin
go -C hack/tools build -o "$PWD/bin/staticcheck" honnef.co/go/tools/cmd/staticcheck
bin/staticcheck ./...
(cd hack && ../bin/staticcheck ./...)
(cd hack/cluster && ../../bin/staticcheck ./...)
(cd hack/release && ../../bin/staticcheck ./...)

step "shell scripts"
for script in hack/*.sh .ci/run; do bash -n "$script"; done
say "verify: all good"
