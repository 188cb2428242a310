#!/usr/bin/env bash
# Builds the output store, a Go module of its own, into bin/.
source "$(dirname "$0")/lib.sh"

mkdir -p bin
counted go -C hack/images/store build -v -ldflags '-s -w' -o "$PWD/bin/store" .
