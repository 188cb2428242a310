package supervisor

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const secretValue = "correct-horse-battery"

// ofItsOwn are the texts that no command can decide: constants, hashes and numbers. The paths of artifacts are redacted when
// the files are collected, and streams when they are read.
var ofItsOwn = map[string]bool{
	"Reason": true, "Signal": true, "Executed.Rule": true, "Refused.Rule": true, "Isolation.Network": true, "Isolation.NoNetwork": true, "Isolation.Way": true, "Isolation.Self.Seccomp": true,
	"File.SHA256": true, "Artifacts.Kept.Path": true, "Artifacts.Kept.SHA256": true, "Artifacts.Kept.MediaType": true,
	"Redactions.Name": true, "Redactions.Stream": true,
}

// setTexts puts a text into every string of a value, however deep, with one element in each list.
func setTexts(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setTexts(v.Elem(), text)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			setTexts(v.Index(0), text)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() || v.Type() == reflect.TypeFor[result.Stream]() {
			return
		}
		for i := range v.NumField() {
			setTexts(v.Field(i), text)
		}
	}
}

// texts calls f with the path of every string.
func texts(v reflect.Value, path string, f func(path, text string)) {
	switch v.Kind() {
	case reflect.String:
		f(path, v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			texts(v.Elem(), path, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), path, f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				texts(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), f)
			}
		}
	}
}

func hiding(t *testing.T) *redaction {
	t.Helper()
	r, err := newRedaction([]envresolve.KnownValue{{Name: "TOKEN", Value: secretValue}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A field that is added to an outcome fails this test until it is redacted, or listed as one that needs it not.
func TestEveryTextOfAnOutcomeIsRedacted(t *testing.T) {
	t.Parallel()
	o := &result.Outcome{}
	setTexts(reflect.ValueOf(o).Elem(), "a/"+secretValue+"/b")
	o.Redactions = nil
	hiding(t).outcome(o)
	redacted := int64(0)
	texts(reflect.ValueOf(o).Elem(), "", func(path, text string) {
		leaks := strings.Contains(text, secretValue)
		if leaks != (ofItsOwn[path] && !strings.HasPrefix(path, "Redactions.")) {
			t.Errorf("%s: %q", path, text)
		}
		if text == "a/[redacted: TOKEN]/b" {
			redacted++
		}
	})
	if len(o.Redactions) != 1 || o.Redactions[0] != (result.Redaction{Name: "TOKEN", Stream: result.RedactedMessage, Count: redacted}) {
		t.Errorf("%d texts are redacted, and the outcome says %+v", redacted, o.Redactions)
	}
}

func TestHostsAndMessagesAreRedactedInAnyCase(t *testing.T) {
	t.Parallel()
	o := &result.Outcome{
		Message: "Reaching CORRECT-horse-battery.example.com was not allowed.", Denied: result.Denials{{Host: "Correct-Horse-Battery.example.com", Count: 1}},
		WorkingDir: "/Correct-Horse-Battery",
	}
	hiding(t).outcome(o)
	if o.Message != "Reaching [redacted: TOKEN].example.com was not allowed." || o.Denied[0].Host != "[redacted: TOKEN].example.com" {
		t.Errorf("got %+v", o)
	}
	if o.WorkingDir != "/Correct-Horse-Battery" || len(o.Redactions) != 1 || o.Redactions[0].Count != 2 {
		t.Errorf("got %q and %+v", o.WorkingDir, o.Redactions)
	}
}

func TestARedactedOutcomeIsOneThatTheOperatorTakes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(secretValue, result.MaxProgramPath/len(secretValue))
	o := &result.Outcome{
		Reason: result.Completed, Started: true, ExitCode: result.Exit(0), WorkingDir: "/" + long, Message: long,
		Executed:  result.Programs{{Path: "/" + long, Count: 1}},
		Isolation: &result.Isolation{Self: &rules.Self{Seccomp: rules.SeccompDisabled}, Network: result.NetworkPod, Writable: result.Paths{"/" + long}},
		Artifacts: &result.Artifacts{Message: strings.Repeat(secretValue, result.MaxArtifactsMessage/len(secretValue))},
	}
	r, err := newRedaction([]envresolve.KnownValue{{Name: strings.Repeat("N", result.MaxRedactionName), Value: secretValue}})
	if err != nil {
		t.Fatal(err)
	}
	r.outcome(o)
	o.Stdout, o.Stderr = wholeStream(nil), wholeStream(nil)
	o.Shorten()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if strings.Contains(o.Executed[0].Path+o.Message+o.Artifacts.Message, secretValue) {
		t.Error("the value is left")
	}
}

func TestWithoutValuesNothingIsChanged(t *testing.T) {
	t.Parallel()
	r, err := newRedaction(nil)
	if err != nil || r.text(secretValue) != secretValue {
		t.Fatal(err)
	}
	o := &result.Outcome{Message: secretValue}
	if r.outcome(o); o.Message != secretValue || o.Redactions != nil || r.text(secretValue) != secretValue {
		t.Errorf("got %+v", o)
	}
}

// A collection that was given up goes on while the outcome is made.
func TestValuesAreCountedByGoroutinesAtTheSameTime(t *testing.T) {
	t.Parallel()
	r := hiding(t)
	var texts sync.WaitGroup
	const each = 200
	for range 8 {
		texts.Go(func() {
			for range each {
				r.text(secretValue)
			}
		})
	}
	texts.Wait()
	o := &result.Outcome{}
	if r.outcome(o); len(o.Redactions) != 1 || o.Redactions[0].Count != 8*each {
		t.Errorf("got %+v", o.Redactions)
	}
}

func TestTooManyValuesAreRefusedWithAWayOut(t *testing.T) {
	t.Parallel()
	var known []envresolve.KnownValue
	for range 1000 {
		known = append(known, envresolve.KnownValue{Name: "N", Value: secretValue})
	}
	if _, err := newRedaction(known); err == nil || !strings.Contains(err.Error(), "output.redaction to Off") || strings.Contains(err.Error(), secretValue) {
		t.Errorf("got %v", err)
	}
}
