package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/redact"
)

const known = "correct-horse-battery"

func redacting(cmd Command) Command {
	cmd.Redact = matching(redact.Value{Name: "token", Value: []byte(known + "\n")})
	return cmd
}

func matching(values ...redact.Value) *redact.Matcher {
	matcher, err := redact.For(values)
	if err != nil {
		panic(err)
	}
	return matcher
}

// redacted is what the one who runs a command makes of what its outcome says beside the output.
func redacted(o result.Outcome, values []redact.Value) result.Outcome {
	matcher := matching(values...)
	count := func(text string, counts []redact.Count) string {
		addRedactions(&o, counts, result.RedactedMessage)
		return text
	}
	replace := func(text string) string { return count(matcher.Text(text)) }
	o.ReplaceTexts(replace, func(text string) string { return count(matcher.HostText(text)) })
	return o
}

func TestKnownValuesAreInNothingThatIsKeptOrShown(t *testing.T) {
	var live, liveErr bytes.Buffer
	var streams [2]kept.Output
	cmd := redacting(bash(`x=correct-horse; echo "a $x-battery b"; printf "$x" >&2; printf -- -batt >&2; echo ery >&2; printf %s "$x-battery" | base64`))
	cmd.Stdout, cmd.Stderr, cmd.MaxBytesPerStream, cmd.KeepBytesPerStream = &live, &liveErr, 1000, 1<<20
	cmd.OnStreams = func(stdout, stderr kept.Output) { streams = [2]kept.Output{stdout, stderr} }
	o := runIt(t, t.Context(), cmd)
	wantOut, wantErr := "a [redacted: token] b\n[redacted: token]\n", "[redacted: token]\n"
	completed(wantOut, wantErr).check(t, o)
	if live.String() != wantOut || liveErr.String() != wantErr {
		t.Errorf("shown: %q and %q", live.String(), liveErr.String())
	}
	for i, want := range []string{wantOut, wantErr} {
		got := make([]byte, len(want)+1)
		n, err := streams[i].ReadAt(t.Context(), got, 0)
		if string(got[:n]) != want || err != nil && err != io.EOF {
			t.Errorf("kept: %q, %v", got[:n], err)
		}
		streams[i].Drop()
	}
	sum := sha256.Sum256([]byte(wantOut))
	if o.Stdout.Bytes != int64(len(wantOut)) || o.Stdout.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("the size and the sum aren't those of what is kept: %+v", o.Stdout)
	}
}

// The pieces come a moment apart, so that each is read by itself.
func TestAValueThatIsReadInPiecesIsReplaced(t *testing.T) {
	var live bytes.Buffer
	cmd := redacting(bash("for part in a- correct- ho rse- batt ery -b; do printf -- $part; sleep 0.1; done"))
	cmd.Stdout = &live
	completed("a-[redacted: token]-b", "").check(t, runIt(t, t.Context(), cmd))
	if live.String() != "a-[redacted: token]-b" {
		t.Errorf("shown: %q", live.String())
	}
}

func TestTheBeginningOfAValueIsShownAtTheEnd(t *testing.T) {
	var live bytes.Buffer
	cmd := redacting(bash("printf correct-horse-batter"))
	cmd.Stdout = &live
	completed("correct-horse-batter", "").check(t, runIt(t, t.Context(), cmd))
	if live.String() != "correct-horse-batter" {
		t.Errorf("shown: %q", live.String())
	}
}

func TestLargeOutputIsRedactedAndShownWhole(t *testing.T) {
	var live bytes.Buffer
	cmd := redacting(bash("for i in {1..20000}; do echo 100% of correct-horse-battery, and more; done"))
	cmd.Stdout, cmd.MaxBytesPerStream = &live, 1000
	o := runIt(t, t.Context(), cmd)
	want := strings.Repeat("100% of [redacted: token], and more\n", 20000)
	sum := sha256.Sum256([]byte(want))
	if live.String() != want || o.Stdout.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%d bytes are shown and %d captured, not %d", live.Len(), o.Stdout.Bytes, len(want))
	}
}
