package main

import (
	"testing"

	"toolcall.dev/operator/internal/version"
)

// The program says the version that a release links into it; hack/release tests that clients of a release get it.
func TestVersion(t *testing.T) {
	t.Parallel()
	if got := newCommand().Version; got != version.String() {
		t.Errorf("%q, not %q", got, version.String())
	}
}
