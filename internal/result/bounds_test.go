package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// largest is the outcome that takes most bytes of all that Validate accepts.
func largest() *Outcome {
	o := &Outcome{
		Reason: OOMKilled, Started: true, Signal: "SIG" + strings.Repeat("X", 29), OOMKilled: true,
		// encoding/json writes each of these bytes as \u0001.
		Message:    strings.Repeat("\x01", MaxMessage),
		Refusal:    strings.Repeat("\x01", MaxMessage),
		WorkingDir: strings.Repeat("\x01", MaxWorkingDir),
		StartTime:  time.Date(2026, 12, 31, 23, 59, 59, 999999999, time.FixedZone("", 12*3600)),
		DurationMS: 1<<63 - 1,
	}
	o.CompletionTime = o.StartTime
	// Both ends end in the middle of a base64 group.
	stream := Stream{
		Head: bytes.Repeat([]byte{0xff}, MaxStreamBytes/2-1), Tail: bytes.Repeat([]byte{0xff}, MaxStreamBytes/2+1),
		Bytes: 1<<63 - 1, SHA256: strings.Repeat("f", 64), InvalidUTF8: true,
	}
	o.Stdout, o.Stderr, o.Output = stream, stream, stream
	o.MoreExecuted, o.MoreRefused, o.MoreDenied = 1<<63-1, 1<<63-1, 1<<63-1
	o.Isolation = &Isolation{
		Self:    &rules.Self{User: 1<<32 - 2, Seccomp: rules.SeccompDisabled, UserNamespace: new(bool)},
		Network: NetworkNone, NoNetwork: strings.Repeat("\x01", MaxProgramPath), Way: rules.WayLandlock, LandlockABI: 1<<63 - 1, Programs: true, Reads: true, Writes: true, Signals: true, OpenUDP: true,
	}
	o.ExitCode, o.Signal, o.Reason = nil, "", CancelRequested
	n := int64(1<<63 - 1)
	o.File = &File{
		Path: strings.Repeat("\x01", MaxFilePath), Bytes: &n, SHA256: strings.Repeat("f", 64), Lines: &n, Matches: &n, Truncated: true,
		NextOffset: &n, Changed: true, Created: true, Replaced: &n, Skipped: SkippedFiles{n, n, n, n, n},
	}
	o.Artifacts = &Artifacts{Omitted: 1<<63 - 1, Message: strings.Repeat("x", MaxArtifactsMessage)}
	for i := range MaxArtifacts {
		// Each of these takes two bytes as JSON.
		name := fmt.Sprintf("%s%02d", strings.Repeat("\n", (MaxArtifactPaths/MaxArtifacts-2)/2), i)
		o.Artifacts.Kept = append(o.Artifacts.Kept, Artifact{
			Path: name, Bytes: MaxArtifactBytes, SHA256: strings.Repeat("f", 64), MediaType: "a/" + strings.Repeat("b", MaxMediaType-2),
		})
	}
	for range MaxRedactions {
		o.Redactions = append(o.Redactions, Redaction{Name: strings.Repeat("N", MaxRedactionName), Stream: RedactedMessage, Count: 1<<63 - 1})
	}
	path := strings.Repeat("\x01", MaxProgramPath)
	for range MaxPrograms {
		o.Executed = append(o.Executed, Program{Path: path, Count: 1<<63 - 1, Rule: RuleInterpreter})
	}
	for range MaxDenials {
		o.Denied = append(o.Denied, NetworkDenial{Host: strings.Repeat("\x01", MaxDenialHost), Port: 1<<16 - 1, Count: 1<<63 - 1})
	}
	for range MaxPaths {
		o.Isolation.NamesOnly = append(o.Isolation.NamesOnly, path)
	}
	o.Refused, o.Isolation.UnheldApplets = slices.Clone(o.Executed), slices.Clone(o.Isolation.NamesOnly)
	o.Isolation.Writable, o.Isolation.NotFound = slices.Clone(o.Isolation.NamesOnly), slices.Clone(o.Isolation.NamesOnly)
	return o
}

func TestMaxEncodedIsALittleMoreThanTheLargestOutcomeTakes(t *testing.T) {
	t.Parallel()
	o := largest()
	if err := o.Validate(); err != nil {
		t.Fatalf("the largest outcome isn't legal: %v", err)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if len(raw) > MaxEncoded || len(raw) < MaxEncoded-32<<10 {
		t.Errorf("it takes %d bytes; the bound is %d", len(raw), MaxEncoded)
	}
}

func TestOneByteMoreThanTheLargestOutcomeIsRefused(t *testing.T) {
	t.Parallel()
	for name, grow := range map[string]func(*Outcome){
		"stdout":      func(o *Outcome) { o.Stdout.Head = append(o.Stdout.Head, 'x') },
		"stderr":      func(o *Outcome) { o.Stderr.Tail = append(o.Stderr.Tail, 'x') },
		"output":      func(o *Outcome) { o.Output.Tail = append(o.Output.Tail, 'x') },
		"message":     func(o *Outcome) { o.Message += "x" },
		"refusal":     func(o *Outcome) { o.Refusal += "x" },
		"working dir": func(o *Outcome) { o.WorkingDir += "x" },
		"signal":      func(o *Outcome) { o.Signal += "X" },
		"hash":        func(o *Outcome) { o.Stdout.SHA256 += "f" },
		"redactions":  func(o *Outcome) { o.Redactions = append(o.Redactions, o.Redactions[0]) },
		"executed":    func(o *Outcome) { o.Executed = append(o.Executed, o.Executed[0]) },
		"refused":     func(o *Outcome) { o.Refused[0].Path += "x" },
		"rule":        func(o *Outcome) { o.Refused[0].Rule = "Other" },
		"count":       func(o *Outcome) { o.Refused[0].Count = 0 },
		"names only":  func(o *Outcome) { o.Isolation.NamesOnly = append(o.Isolation.NamesOnly, "x") },
		"applets":     func(o *Outcome) { o.Isolation.UnheldApplets[0] += "x" },
		"writable":    func(o *Outcome) { o.Isolation.Writable[0] += "x" },
		"user":        func(o *Outcome) { o.Isolation.Self.User = 1<<32 - 1 },
		"seccomp":     func(o *Outcome) { o.Isolation.Self.Seccomp += "x" },
		"network":     func(o *Outcome) { o.Isolation.Network = "Host" },
		"way":         func(o *Outcome) { o.Isolation.Way = "Hope" },
		"no network":  func(o *Outcome) { o.Isolation.NoNetwork = strings.Repeat("x", MaxProgramPath+1) },
		"more":        func(o *Outcome) { o.MoreRefused = -1 },
		"denied":      func(o *Outcome) { o.Denied = append(o.Denied, o.Denied[0]) },
		"denied host": func(o *Outcome) { o.Denied[0].Host += "x" },
		"no host":     func(o *Outcome) { o.Denied[0].Host = "" },
		"denials":     func(o *Outcome) { o.Denied[0].Count = 0 },
		"more denied": func(o *Outcome) { o.MoreDenied = -1 },
		"file path":   func(o *Outcome) { o.File.Path += "x" },
		"file hash":   func(o *Outcome) { o.File.SHA256 += "f" },
		"file count":  func(o *Outcome) { *o.File.Bytes = -1 },
		"artifacts": func(o *Outcome) {
			o.Artifacts.Kept = append(o.Artifacts.Kept, Artifact{Path: "x", SHA256: strings.Repeat("f", 64), MediaType: "a/b"})
		},
		"artifacts' paths": func(o *Outcome) {
			o.Artifacts.Kept[0].Path += strings.Repeat("x", MaxArtifactPaths%MaxArtifacts+MaxArtifacts)
		},
		"artifact's size":    func(o *Outcome) { o.Artifacts.Kept[0].Bytes++ },
		"artifact's hash":    func(o *Outcome) { o.Artifacts.Kept[0].SHA256 += "f" },
		"artifact's type":    func(o *Outcome) { o.Artifacts.Kept[0].MediaType += "b" },
		"artifacts' message": func(o *Outcome) { o.Artifacts.Message += "x" },
		"skipped":            func(o *Outcome) { o.File.Skipped.Deep = -1 },
	} {
		o := largest()
		grow(o)
		if o.Validate() == nil {
			t.Errorf("accepted with a longer %s", name)
		}
	}
}

func TestShortenMakesAnOutcomeFit(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), MaxStreamBytes/8)
	for name, o := range map[string]*Outcome{
		"a whole stream over the bound": finished(data, data, len(data)),
		"two ends over the bound":       finished(append(data, data...), nil, len(data)),
		"a long message":                {Reason: CommandNotFound, Message: strings.Repeat("é", MaxMessage)},
		"a message that isn't UTF-8":    {Reason: CommandNotFound, Message: strings.Repeat("\xff", 2*MaxMessage)},
		"a long path":                   {Reason: CommandNotFound, WorkingDir: strings.Repeat("/x", MaxWorkingDir)},
	} {
		before := *o
		if o.Validate() == nil {
			t.Errorf("%s: legal already", name)
		}
		o.Shorten()
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !utf8.ValidString(o.Message) || (len(before.Message) > MaxMessage && len(o.Message) < MaxMessage-3) {
			t.Errorf("%s: the message is left with %d bytes", name, len(o.Message))
		}
		checkPart(t, before.Stdout, o.Stdout)
		checkPart(t, before.Stderr, o.Stderr)
	}
}

func TestShortenLeavesWhatFits(t *testing.T) {
	t.Parallel()
	o := largest()
	want, _ := json.Marshal(o)
	o.Shorten()
	if got, _ := json.Marshal(o); !bytes.Equal(got, want) {
		t.Error("the largest legal outcome was changed")
	}
}

// A cut looks at each byte of a stream at most twice, however long the stream and small the limit.
func TestCuttingTakesTimeInProportionToTheStream(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"text": "a line\n", "wide": "😀", "invalid": "\xff", "NUL": "\x00"} {
		for _, n := range []int{1 << 10, 1 << 14, 1 << 18} {
			data := bytes.Repeat([]byte(unit), n/len(unit))
			for _, keep := range []int{len(data), len(data) / 2} {
				for _, limit := range []int{0, 1, n / 2, 2 * n} {
					looks := 0
					s := captured(data, keep)
					s.cut(limit, limit, func(seq []byte, valid bool) int {
						looks++
						return textCost(seq, valid)
					})
					if looks > 2*len(data)+2 {
						t.Errorf("%s, %d of %d bytes kept, limit %d: %d looks", name, keep, len(data), limit, looks)
					}
				}
			}
		}
	}
}

func TestATextTakesTheSameNumberOfAllocationsWhateverItsLength(t *testing.T) {
	few, many := textAllocations(1<<10), textAllocations(1<<18)
	// A longer text may grow its buffer a few times more; it never allocates for each character.
	if many > few+20 {
		t.Errorf("%v allocations for 1 KiB, %v for 256 KiB", few, many)
	}
}

func textAllocations(n int) float64 {
	s := captured(bytes.Repeat([]byte("é\xff"), n), 3*n)
	return testing.AllocsPerRun(5, func() { s.Text(n / 2) })
}

func TestListsOfProgramsAreReadUpToTheirBound(t *testing.T) {
	t.Parallel()
	var o Outcome
	empty := strings.Repeat("{},", 1000) + "{}"
	paths := strings.Repeat(`"a",`, 1000) + `"a"`
	raw := `{"executed":[` + empty + `],"isolation":{"namesOnly":[` + paths + `],"writable":["a"],"notFound":null}}`
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Executed) != MaxList+1 || len(o.Isolation.NamesOnly) != MaxList+1 || len(o.Isolation.Writable) != 1 || o.Isolation.NotFound != nil {
		t.Errorf("read %d programs and %+v", len(o.Executed), o.Isolation)
	}
	for _, raw := range []string{`{"executed":{}}`, `{"executed":[1]}`, `{"isolation":{"writable":"a"}}`} {
		if json.Unmarshal([]byte(raw), &o) == nil {
			t.Errorf("%s was read", raw)
		}
	}
}
