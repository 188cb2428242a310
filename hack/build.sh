#!/usr/bin/env bash
# Builds the project's programs into bin/.
source "$(dirname "$0")/lib.sh"

mkdir -p bin
export CGO_ENABLED=0
counted go build -v -trimpath -ldflags '-s -w' -o bin/ ./cmd/...
