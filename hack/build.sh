#!/usr/bin/env bash
# Builds the project's programs into bin/.
source "$(dirname "$0")/lib.sh"

mkdir -p bin
counted go build -v -ldflags '-s -w' -o bin/ ./cmd/...
