package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
)

// MaxTermination is how much of a termination message the kubelet keeps of one container, in bytes.
const MaxTermination = 4096

const (
	terminationVersion = 1
	// minTermination has room for every field but the streams' bytes, with message and directory left out.
	minTermination = 1536
	// shortField bounds the fields that may be cut or left out so that output has room.
	shortField = 512
)

// termination is the compact form of an outcome.
type termination struct {
	Version int `json:"v"`
	// Outcome has only some of its fields. Its Refusal is empty when the message says it.
	Outcome
	// Artifacts counts what was collected, or was to be: it went with the pod.
	Artifacts int64         `json:"artifacts,omitempty"`
	Stdout    compactStream `json:"stdout,omitzero"`
	Stderr    compactStream `json:"stderr,omitzero"`
}

// EncodeTermination returns a compact copy of the outcome: one line of JSON of at most limit bytes, escaping
// included, with as much of both ends of the streams as fits. The bytes that are in it are exact: text is
// written as text, other bytes in base64. A limit under 1536 counts as 1536.
//
// The copy isn't authenticated. Every process in the container may write the message, so a reader must verify
// its origin by other means.
func EncodeTermination(o *Outcome, limit int) []byte {
	limit = max(limit, minTermination)
	t := newTermination(o)
	if len(encode(t)) > limit {
		t.Message, t.Refusal, t.WorkingDir = "", "", ""
		if t.File != nil {
			t.File.Path = ""
		}
	}
	// Bytes that can't fit are dropped first, so that what follows takes time for the others only.
	stdout, stderr := o.Stdout.shortened(limit), o.Stderr.shortened(limit)
	// As text, a byte takes three at most, and what it takes in JSON shows when it is written.
	all := min(stdout.cost()+stderr.cost(), 3*limit)
	over := sort.Search(all, func(room int) bool {
		t.addStreams(stdout, stderr, room+1)
		return len(encode(t)) > limit
	})
	t.addStreams(stdout, stderr, over)
	return encode(t)
}

// newTermination copies all but the streams' bytes.
func newTermination(o *Outcome) *termination {
	t := &termination{
		Version: terminationVersion,
		Outcome: Outcome{
			Reason: firstText(o.Reason, 64), Message: firstText(o.Message, shortField), Started: o.Started, ExitCode: o.ExitCode,
			Signal: firstText(o.Signal, 32), OOMKilled: o.OOMKilled, StartTime: o.StartTime, CompletionTime: o.CompletionTime,
			DurationMS: o.DurationMS, Usage: o.Usage,
		},
		Stdout: newCompactStream(&o.Stdout), Stderr: newCompactStream(&o.Stderr),
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

// addStreams shares room between the streams: half each, and what one stream doesn't need goes to the other.
func (t *termination) addStreams(stdout, stderr *Stream, room int) {
	a, b := stdout.cost(), stderr.cost()
	roomA := min(a, max(room/2, room-b))
	t.Stdout.fill(stdout, roomA)
	t.Stderr.fill(stderr, room-roomA)
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
	var err error
	if o.Stdout, err = t.Stdout.stream(); err != nil {
		return nil, fmt.Errorf("stdout in the termination message: %w", err)
	}
	if o.Stderr, err = t.Stderr.stream(); err != nil {
		return nil, fmt.Errorf("stderr in the termination message: %w", err)
	}
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
