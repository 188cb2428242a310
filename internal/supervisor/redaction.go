package supervisor

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/files"
	"toolcall.dev/operator/internal/runner/redact"
)

// redaction replaces the known values of one call in what is said about it. The zero value replaces nothing.
type redaction struct {
	values  []redact.Value
	matcher *redact.Matcher

	// mu is for counts: a collection that was given up can go on.
	mu     sync.Mutex
	counts []redact.Count
}

func newRedaction(known []envresolve.KnownValue) (*redaction, error) {
	r := &redaction{}
	for _, k := range known {
		r.values = append(r.values, redact.Value{Name: k.Name, Value: []byte(k.Value), Foreign: !k.Given})
	}
	if len(r.values) == 0 {
		return r, nil
	}
	var err error
	if r.matcher, err = redact.For(r.values); err != nil {
		return nil, fmt.Errorf("%w: set redact: false for some of the environment's secrets, or the policy's output.redaction to Off", err)
	}
	return r, nil
}

func (r *redaction) count(counts []redact.Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts = append(r.counts, counts...)
}

// text returns a text without the values, and counts them.
func (r *redaction) text(text string) string {
	if r.matcher == nil {
		return text
	}
	text, counts := r.matcher.Text(text)
	r.count(counts)
	return text
}

// hostText is text, for what names hosts.
func (r *redaction) hostText(text string) string {
	if r.matcher == nil {
		return text
	}
	text, counts := r.matcher.HostText(text)
	r.count(counts)
	return text
}

// inFiles has operations on files show nothing of the values.
func (r *redaction) inFiles(rules *files.Rules) *files.Rules {
	if r.matcher == nil {
		return rules
	}
	for _, v := range r.values {
		rules.HiddenAround = max(rules.HiddenAround, longestForm(v.Value)*files.HiddenForm)
	}
	rules.Hidden = r.matcher.Spans
	return rules
}

// longestForm is the length of a value's longest form before it is encoded: with two bytes for each line end, or with a character
// of three for each byte of what isn't UTF-8.
func longestForm(value []byte) int64 {
	if !utf8.Valid(value) {
		return int64(len(value) * len("\uFFFD"))
	}
	return int64(len(value) + bytes.Count(value, []byte("\n")))
}

// addReplacements counts what isn't shown of the result of an operation on files.
func addReplacements(o *result.Outcome, replaced map[string]int64) {
	for _, name := range slices.Sorted(maps.Keys(replaced)) {
		o.AddRedaction(result.Redaction{Name: name, Stream: result.RedactedStdout, Count: replaced[name]})
	}
}

// outcome redacts what an outcome says beside its streams, before anything of it is cut.
func (r *redaction) outcome(o *result.Outcome) {
	if r.matcher == nil {
		return
	}
	o.ReplaceTexts(r.text, r.hostText)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.counts {
		o.AddRedaction(result.Redaction{Name: c.Name, Stream: result.RedactedMessage, Count: c.Count})
	}
	r.counts = nil
}
