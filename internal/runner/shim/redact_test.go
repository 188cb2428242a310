package shim

import (
	"bytes"
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

func TestTheOutputOfACommandInAShimIsRedacted(t *testing.T) {
	b := newBench(t, 1)
	cmd, shown := keeping(t, bash(`x=correct-horse; echo "a $x-battery"; printf '\377binary-value\0' >&2`), 1<<20)
	cmd.Redact = []redact.Value{{Name: "token", Value: []byte("correct-horse-battery")}, {Name: "odd", Value: []byte("\xffbinary-value\x00"), Foreign: true}}
	o := b.run(t.Context(), cmd)
	if o.Reason != result.Completed || text(o.Stdout) != "a [redacted: token]\n" || text(o.Stderr) != "[redacted: odd]" {
		t.Errorf("got %q, %q, %s", text(o.Stdout), text(o.Stderr), reason(o))
	}
	if n, sum := hashed(t, (<-shown).stdout); n != o.Stdout.Bytes || sum != o.Stdout.SHA256 {
		t.Errorf("%d bytes are kept, and the outcome says %d", n, o.Stdout.Bytes)
	}
	// The next command in the same shim has no values.
	if o := b.run(t.Context(), bash(`x=correct-horse; echo "a $x-battery"`)); text(o.Stdout) != "a correct-horse-battery\n" {
		t.Errorf("then %q", text(o.Stdout))
	}
}

func TestAShimStartsNoCommandWhoseValuesCantBeLookedFor(t *testing.T) {
	b := newBench(t, 1)
	cmd := bash("echo started")
	cmd.Redact = []redact.Value{{Name: "large", Value: bytes.Repeat([]byte("v"), redact.MaxLength+1)}}
	if o := b.run(t.Context(), cmd); o.Started || o.Reason != result.InvalidEnvironment {
		t.Errorf("%s", reason(o))
	}
}
