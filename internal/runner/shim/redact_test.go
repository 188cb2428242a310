package shim

import (
	"testing"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

func TestTheOutputOfACommandInAShimIsRedacted(t *testing.T) {
	b := newBench(t, 1)
	cmd, shown := keeping(t, bash(`x=correct-horse; echo "a $x-battery"; printf '\377binary-value\0' >&2`), 1<<20)
	var err error
	cmd.Redact, err = redact.For([]redact.Value{{Name: "token", Value: []byte("correct-horse-battery")}, {Name: "odd", Value: []byte("\xffbinary-value\x00"), Foreign: true}})
	if err != nil {
		t.Fatal(err)
	}
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
