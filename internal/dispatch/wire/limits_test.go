package wire_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// largestResult takes most bytes of all results that are legal.
func largestResult() *wire.Result {
	stream := result.Stream{
		Head: bytes.Repeat([]byte{0xff}, result.MaxStreamBytes/2-1), Tail: bytes.Repeat([]byte{0xff}, result.MaxStreamBytes/2+1),
		Bytes: 1<<63 - 1, SHA256: strings.Repeat("f", 64), InvalidUTF8: true,
	}
	at := time.Date(2026, 12, 31, 23, 59, 59, 999999999, time.UTC)
	r := &wire.Result{
		CallUID:  "01234567-89ab-cdef-0123-456789abcdef",
		Decision: strings.Repeat("d", wire.MaxDecision),
		Outcome: result.Outcome{
			Reason: result.CancelRequested, Started: true, OOMKilled: true,
			Message: strings.Repeat("\x01", result.MaxMessage), Refusal: strings.Repeat("\x01", result.MaxMessage), WorkingDir: strings.Repeat("\x01", result.MaxWorkingDir),
			StartTime: at, CompletionTime: at, DurationMS: 1<<63 - 1, Stdout: stream, Stderr: stream, Output: stream,
		},
		Environment: wire.Environment{
			WorkingDir: strings.Repeat("\x01", result.MaxWorkingDir), OmittedVars: 1<<63 - 1, OmittedStripped: 1<<63 - 1,
		},
	}
	path := strings.Repeat("\x01", result.MaxProgramPath)
	o := &r.Outcome
	n := int64(1<<63 - 1)
	o.File = &result.File{
		Path: strings.Repeat("\x01", result.MaxFilePath), Bytes: &n, SHA256: strings.Repeat("f", 64), Lines: &n, Matches: &n, Truncated: true,
		NextOffset: &n, Changed: true, Created: true, Replaced: &n, Skipped: result.SkippedFiles{Binary: n, Denied: n, Unreadable: n, Deep: n, LongLines: n},
	}
	o.Isolation = &result.Isolation{
		Self:    &rules.Self{User: 1<<32 - 2, Seccomp: rules.SeccompDisabled, UserNamespace: new(bool)},
		Network: result.NetworkNone, LandlockABI: 7, Programs: true, Reads: true, Writes: true, Signals: true, OpenUDP: true,
	}
	o.MoreDenied = n
	o.Artifacts = &result.Artifacts{Omitted: n, Message: strings.Repeat("x", result.MaxArtifactsMessage)}
	for i := range result.MaxArtifacts {
		o.Artifacts.Kept = append(o.Artifacts.Kept, result.Artifact{
			Path: fmt.Sprintf("%0*d", result.MaxArtifactPaths/result.MaxArtifacts, i), Bytes: result.MaxArtifactBytes, SHA256: strings.Repeat("f", 64),
			MediaType: "a/" + strings.Repeat("b", result.MaxMediaType-2),
		})
	}
	for range result.MaxPrograms {
		o.Executed = append(o.Executed, result.Program{Path: path, Count: 1<<63 - 1, Rule: result.RuleInterpreter})
	}
	for range result.MaxRedactions {
		o.Redactions = append(o.Redactions, result.Redaction{Name: strings.Repeat("N", result.MaxRedactionName), Stream: result.RedactedMessage, Count: n})
	}
	for range result.MaxDenials {
		o.Denied = append(o.Denied, result.NetworkDenial{Host: strings.Repeat("\x01", result.MaxDenialHost), Port: 1<<16 - 1, Count: n})
	}
	for range result.MaxPaths {
		o.Isolation.NamesOnly = append(o.Isolation.NamesOnly, path)
	}
	o.Refused, o.Isolation.UnheldApplets, o.Isolation.Writable, o.Isolation.NotFound = o.Executed, o.Isolation.NamesOnly, o.Isolation.NamesOnly, o.Isolation.NamesOnly
	for i := range wire.MaxNames {
		name := fmt.Sprintf("A%0*d", wire.MaxNameBytes-1, i)
		r.Environment.Vars = append(r.Environment.Vars, envresolve.ResolvedVar{Name: name, Source: envresolve.SourceEnvironment})
		r.Environment.Stripped = append(r.Environment.Stripped, name)
	}
	return r
}

func TestMaxResultIsALittleMoreThanTheLargestResultTakes(t *testing.T) {
	t.Parallel()
	r := largestResult()
	if err := r.Validate(); err != nil {
		t.Fatalf("the largest result isn't legal: %v", err)
	}
	frame, err := wire.Encode(&wire.Message{Result: r})
	if err != nil {
		t.Fatal(err)
	}
	if size := len(frame) - 4; size < wire.MaxResult-32<<10 {
		t.Errorf("the largest result takes %d bytes; the bound of %d is too wide", size, wire.MaxResult)
	}
}

func TestMoreThanTheLargestResultIsIllegal(t *testing.T) {
	t.Parallel()
	for name, grow := range map[string]func(*wire.Result){
		"a byte of the decision":    func(r *wire.Result) { r.Decision += "d" },
		"a decision with a quote":   func(r *wire.Result) { r.Decision = "a\"b" },
		"a decision of two lines":   func(r *wire.Result) { r.Decision = "a\nb" },
		"a byte of output":          func(r *wire.Result) { r.Outcome.Stdout.Head = append(r.Outcome.Stdout.Head, 'x') },
		"a byte of the message":     func(r *wire.Result) { r.Outcome.Message += "x" },
		"a byte of the path":        func(r *wire.Result) { r.Environment.WorkingDir += "x" },
		"a variable":                func(r *wire.Result) { r.Environment.Vars = append(r.Environment.Vars, r.Environment.Vars[0]) },
		"a stripped variable":       func(r *wire.Result) { r.Environment.Stripped = append(r.Environment.Stripped, "A") },
		"a byte of a name":          func(r *wire.Result) { r.Environment.Vars[0].Name += "x" },
		"a byte of a stripped name": func(r *wire.Result) { r.Environment.Stripped[0] += "x" },
		"a name that isn't one":     func(r *wire.Result) { r.Environment.Vars[0].Name = "a b" },
		"a stripped one that isn't": func(r *wire.Result) { r.Environment.Stripped[0] = "" },
		"a source that isn't one":   func(r *wire.Result) { r.Environment.Vars[0].Source = "Elsewhere" },
		"a negative count":          func(r *wire.Result) { r.Environment.OmittedVars = -1 },
		"another negative count":    func(r *wire.Result) { r.Environment.OmittedStripped = -1 },
		"a reason that isn't one":   func(r *wire.Result) { r.Outcome.Reason = "Denied" },
		"a file without a start":    func(r *wire.Result) { r.Outcome.Started = false },
		"a byte of a file's path":   func(r *wire.Result) { r.Outcome.File.Path += "x" },
		"a byte of an artifact's":   func(r *wire.Result) { r.Outcome.Artifacts.Kept[0].Path += strings.Repeat("x", result.MaxArtifacts) },
	} {
		r := largestResult()
		grow(r)
		if r.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestAResultOverTheBoundIsNotSent(t *testing.T) {
	t.Parallel()
	r := largestResult()
	r.CallUID = strings.Repeat("x", 32<<10)
	if _, err := wire.Encode(&wire.Message{Result: r}); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestShortenMakesAnyResultLegal(t *testing.T) {
	t.Parallel()
	r := largestResult()
	r.Environment.OmittedVars, r.Environment.OmittedStripped = 0, 0
	r.Outcome.Stdout.Head = bytes.Repeat([]byte("x"), 1<<20)
	r.Outcome.Message = strings.Repeat("\xff", 1<<20)
	r.Environment.WorkingDir = strings.Repeat("/x", 1<<20)
	long := strings.Repeat("A", wire.MaxNameBytes+1)
	r.Environment.Vars = append([]envresolve.ResolvedVar{{Name: long, Source: envresolve.SourceImage}}, r.Environment.Vars...)
	r.Environment.Stripped = append(r.Environment.Stripped, "A", "B")
	r.Shorten()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.Encode(&wire.Message{Result: r}); err != nil {
		t.Error(err)
	}
	e := &r.Environment
	if len(e.Vars) != wire.MaxNames || e.OmittedVars != 1 || len(e.Stripped) != wire.MaxNames || e.OmittedStripped != 2 {
		t.Errorf("%d names, %d omitted; %d stripped, %d omitted", len(e.Vars), e.OmittedVars, len(e.Stripped), e.OmittedStripped)
	}
	again, _ := json.Marshal(r)
	r.Shorten()
	if got, _ := json.Marshal(r); !bytes.Equal(got, again) {
		t.Error("what was shortened is shortened again")
	}
}

func TestShortenLeavesOutNamesThatNoVariableHas(t *testing.T) {
	t.Parallel()
	r := &wire.Result{Outcome: result.Outcome{Reason: result.CommandNotFound}, Environment: wire.Environment{
		WorkingDir: strings.Repeat("\xff", result.MaxWorkingDir), OmittedVars: -1, OmittedStripped: -1,
		Vars:     []envresolve.ResolvedVar{{Name: "A B", Source: envresolve.SourceImage}, {Name: "C", Source: "Elsewhere"}, {Name: "D", Source: envresolve.SourceImage}},
		Stripped: []string{"", "E"},
	}}
	r.Shorten()
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	e := &r.Environment
	if len(e.Vars) != 1 || e.Vars[0].Name != "D" || e.OmittedVars != 2 || len(e.Stripped) != 1 || e.OmittedStripped != 1 || e.WorkingDir != "" {
		t.Errorf("got %+v", e)
	}
}

func TestADecodedEnvironmentIsBoundedWhateverWasSent(t *testing.T) {
	t.Parallel()
	body := `{"result":{"callUID":"u","environment":{"vars":[{}` + strings.Repeat(",{}", 20_000) + `],"stripped":[""` + strings.Repeat(`,""`, 10_000) + `]}}}`
	m, err := readFromRunner(frame(body), len(body))
	if err != nil {
		t.Fatal(err)
	}
	e := &m.Result.Environment
	if len(e.Vars) != wire.MaxNames+1 || cap(e.Vars) > 4*wire.MaxNames || len(e.Stripped) != wire.MaxNames+1 || cap(e.Stripped) > 4*wire.MaxNames {
		t.Errorf("%d variables, room for %d, %d names, room for %d", len(e.Vars), cap(e.Vars), len(e.Stripped), cap(e.Stripped))
	}
	if m.Result.Outcome.Reason = result.CommandNotFound; m.Result.Validate() == nil {
		t.Error("more names than there may be are valid")
	}
	for name, environment := range map[string]string{
		"null lists":     `{"vars":null,"stripped":null}`,
		"no lists":       `{}`,
		"an object":      `{"vars":{}}`,
		"a number":       `{"stripped":1}`,
		"a wrong name":   `{"vars":[{"n":1}]}`,
		"a wrong string": `{"stripped":[{}]}`,
		"not an object":  `[]`,
	} {
		err := json.Unmarshal([]byte(environment), &wire.Environment{})
		if want := strings.HasPrefix(name, "n") && name != "not an object"; (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The memory that a message takes is in proportion to its frame, whatever is in it: the budget counts frames.
func TestAHostileFrameTakesNoMoreMemoryThanItsSize(t *testing.T) {
	const size = 512 << 10
	fill := func(before, unit, after string) string {
		return before + unit + strings.Repeat(","+unit, (size-len(before)-len(after))/(len(unit)+1)-1) + after
	}
	for name, body := range map[string]string{
		"layers of a plan":    fill(`{"assign":{"environment":{"l":[`, `{}`, `]}}}`),
		"arguments":           fill(`{"assign":{"argv":[`, `""`, `]}}`),
		"variables":           fill(`{"result":{"environment":{"vars":[`, `{}`, `]}}}`),
		"stripped variables":  fill(`{"result":{"environment":{"stripped":[`, `""`, `]}}}`),
		"unknown fields":      fill(`{"result":{"x":[`, `{}`, `]}}`),
		"an unknown message":  fill(`{"x":[`, `[]`, `]}`),
		"output":              `{"result":{"outcome":{"stdout":{"head":"` + base64.StdEncoding.EncodeToString(make([]byte, size/4*3)) + `"}}}}`,
		"a message to people": `{"result":{"outcome":{"message":"` + strings.Repeat("x", size) + `"}}}`,
	} {
		var kept *wire.Message
		used := heapGrowth(func() { kept, _ = readFromRunner(frame(body), 2*size) })
		if used > 2*size {
			t.Errorf("%s: a frame of %d bytes holds %d", name, len(body), used)
		}
		runtime.KeepAlive(kept)
	}
}

// heapGrowth is how many bytes are still in use after a function has returned.
func heapGrowth(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestAHelloOfTheLongestNamesFits(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 253)
	hello := &wire.Hello{
		Version: wire.Version, Namespace: name, Call: name, Pool: name, Job: name, JobUID: name, Pod: name, PodUID: name, Node: name,
		Token: strings.Repeat("x", 43), Serving: &wire.Serving{Owner: wire.Owner{Kind: wire.KindSession, UID: name, Name: name, Incarnation: 1<<31 - 1}, Taken: 1<<63 - 1, Held: 1<<63 - 1},
	}
	if _, err := wire.Encode(&wire.Message{Hello: hello}); err != nil {
		t.Error(err)
	}
	hello.Node = strings.Repeat("x", wire.MaxHello)
	if _, err := wire.Encode(&wire.Message{Hello: hello}); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("a hello over the bound: %v", err)
	}
}

func TestAnAssignmentOfTheLargestCallFits(t *testing.T) {
	t.Parallel()
	const etcdRequest = 1536 << 10
	decision := envresolve.Plan{Blocklist: []string{strings.Repeat("x", 200<<10)}}
	for name, a := range map[string]*wire.Assignment{
		"all in stdin":     {Stdin: bytes.Repeat([]byte("x"), etcdRequest), Environment: decision},
		"all in a source":  {Source: bytes.Repeat([]byte("x"), etcdRequest), HasSource: true, Environment: decision},
		"all in arguments": {Argv: []string{strings.Repeat("\x01", etcdRequest/6)}, Environment: decision},
		"HTML":             {Argv: []string{strings.Repeat("<", etcdRequest)}, Environment: decision},
	} {
		if _, err := wire.Encode(&wire.Message{Assign: a}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	a := &wire.Assignment{Stdin: make([]byte, wire.MaxAssignment)}
	if _, err := wire.Encode(&wire.Message{Assign: a}); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("one over the bound: %v", err)
	}
}
