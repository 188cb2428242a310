package tools

import (
	"encoding/json"
	"strings"
	"testing"
)

// An artifact is named by its path and its call, or by the URI of its link.
func TestReadOutputArguments(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][4]string{
		`{"call":"c"}`:                                         {"", "c", "", "stdout"},
		`{"call":"c","stream":"STDERR"}`:                       {"", "c", "", "stderr"},
		`{"call":"c","artifact":"a/b.png"}`:                    {"", "c", "a/b.png", "stdout"},
		`{"call":"c","artifact":"a","stream":""}`:              {"", "c", "a", "stdout"},
		`{"artifact":"toolcall://ns/c/a%20b.png"}`:             {"ns", "c", "a b.png", "stdout"},
		`{"call":"c","artifact":"toolcall://ns/c//tmp/b.png"}`: {"ns", "c", "/tmp/b.png", "stdout"},
	} {
		got, err := ReadOutput.Parse(json.RawMessage(raw))
		if err != nil || [4]string{got.Namespace, got.Name, got.Artifact, string(got.Stream)} != want || got.Limit != defaultRead {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	for raw, want := range map[string]string{
		`{}`:                 "call: is required",
		`{"artifact":"a"}`:   "call: is required",
		`{"call":"../x"}`:    "call: must be the name of a call",
		`{"call":{"a":"b"}}`: "call: must be a string, not an object",
		`{"call":"c","artifact":"toolcall://ns/d/a"}`:      "artifact: is of another call than c",
		`{"artifact":"toolcall://ns/d"}`:                   "artifact: is not a URI of an artifact",
		`{"artifact":"toolcall://%zz/d/a"}`:                "artifact: is not a URI of an artifact",
		`{"call":"c","artifact":"a","stream":"stdout"}`:    "stream: is not used together with artifact",
		`{"call":"c","artifact":"toolcall://ns/../c/a"}`:   "artifact: names no call",
		`{"artifact":"toolcall://ns/UPPER_case/passwd"}`:   "artifact: names no call",
		`{"artifact":"toolcall://ns/c/a","limit":9999999}`: "limit: must be a whole number",
	} {
		if _, err := ReadOutput.Parse(json.RawMessage(raw)); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q alone", raw, err, want)
		}
	}
}
