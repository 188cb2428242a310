package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxTermination is how much of a termination message the kubelet keeps of one container, in bytes.
const MaxTermination = 4096

const (
	terminationVersion = 2
	// minTermination has room for every field but the streams' bytes, with message and directory left out.
	minTermination = 1536
	// shortField bounds the fields that may be cut or left out so that output has room.
	shortField = 512
	// endOverhead is what each of a stream's ends takes beside its bytes in base64: its name, and the padding.
	endOverhead = len(`"head":"",`) + 4
)

// termination is the compact form of an outcome.
type termination struct {
	Version int `json:"v"`
	// Outcome has only some of its fields. Its Refusal is empty when the message says it.
	Outcome
	// Artifacts counts what was collected, or was to be: it went with the pod.
	Artifacts int64 `json:"artifacts,omitempty"`
}

// EncodeTermination returns a compact copy of the outcome: one line of JSON of at most limit bytes, escaping
// included, with as much of both ends of the streams as fits. A limit under 1536 counts as 1536.
//
// The copy isn't authenticated. Every process in the container may write the message, so a reader must verify
// its origin by other means.
func EncodeTermination(o *Outcome, limit int) []byte {
	limit = max(limit, minTermination)
	t := newTermination(o)
	size := len(encode(t))
	if size > limit {
		t.Message, t.Refusal, t.WorkingDir = "", "", ""
		if t.File != nil {
			t.File.Path = ""
		}
		size = len(encode(t))
	}
	// Four bytes of base64 have three. Half of them for each stream, and what one stream doesn't need goes to the other.
	room := max(limit-size-4*endOverhead, 0) / 4 * 3
	forStdout := min(o.Stdout.kept(), max(room/2, room-o.Stderr.kept()))
	t.Stdout, t.Stderr = *o.Stdout.shortened(forStdout), *o.Stderr.shortened(room - forStdout)
	return encode(t)
}

// newTermination copies all but the streams' bytes.
func newTermination(o *Outcome) *termination {
	t := &termination{
		Version: terminationVersion,
		Outcome: Outcome{
			Reason: firstText(o.Reason, 64), Message: firstText(o.Message, shortField), Started: o.Started, ExitCode: o.ExitCode,
			Signal: firstText(o.Signal, 32), OOMKilled: o.OOMKilled, StartTime: o.StartTime, CompletionTime: o.CompletionTime,
			DurationMS: o.DurationMS, Usage: o.Usage, Stdout: *o.Stdout.shortened(0), Stderr: *o.Stderr.shortened(0),
		},
	}
	if !strings.Contains(o.Message, o.Refusal) {
		t.Refusal = firstText(o.Refusal, shortField)
	}
	if a := o.Artifacts; a != nil {
		t.Artifacts = int64(len(a.Kept)) + min(a.Omitted, 1<<62)
	}
	if len(o.WorkingDir) <= shortField {
		t.WorkingDir = o.WorkingDir
	}
	if o.File != nil {
		file := *o.File
		if len(file.Path) > shortField {
			file.Path = ""
		}
		t.File = &file
	}
	return t
}

// encode returns nil when the outcome can't be written, which only a time after the year 9999 can cause.
func encode(t *termination) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(t) != nil {
		return nil
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// DecodeTermination reads what EncodeTermination wrote. Anything may have written b: an error is returned
// for what is too long, isn't exactly one such object, or contradicts itself.
func DecodeTermination(b []byte) (*Outcome, error) {
	if len(b) > MaxTermination {
		return nil, fmt.Errorf("termination message of %d bytes is longer than %d", len(b), MaxTermination)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var t termination
	if err := dec.Decode(&t); err != nil {
		return nil, fmt.Errorf("reading the termination message: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the termination message goes on after its end")
	}
	if t.Version != terminationVersion {
		return nil, fmt.Errorf("termination message has version %d, not %d", t.Version, terminationVersion)
	}
	return t.outcome()
}

func (t *termination) outcome() (*Outcome, error) {
	o := &t.Outcome
	if t.Artifacts != 0 {
		o.Artifacts = ArtifactsLost(t.Artifacts)
	}
	if f := o.File; f != nil && !o.Stdout.Whole() {
		// There was no room for all that it read or found.
		f.Truncated, f.NextOffset, f.Lines, f.SHA256 = true, nil, nil, ""
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("the termination message: %w", err)
	}
	return o, nil
}
