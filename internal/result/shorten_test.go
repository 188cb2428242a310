package result

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// filler fills outcomes with anything that their types can hold.
type filler struct {
	*rand.Rand
	t *testing.T
}

// plausible are texts that some field may have, or nearly.
var plausible = []string{
	"", "/bin/sh", "a.example.com", "text/plain", "SIGKILL", "SIGRTMIN+1", "sigkill", "TOKEN", "NO NAME", strings.Repeat("a", 64), strings.Repeat("f", 65),
	Completed, NonZeroExit, Signaled, TimedOut, CancelRequested, CommandNotFound, FileNotFound, OOMKilled,
	RuleNotListed, RuleInterpreter, RedactedStdout, RedactedMessage, NetworkHeld, "Filter",
}

var characters = []string{"a", "/", ".", "é", "中", "😀", "\x00", "\x01", "\"", "\\", "<", "\u2028", "\n", "\x7f", "\xff", "\xe4\xb8", "\uFFFD"}

func (f *filler) text() string {
	if f.IntN(3) > 0 {
		return plausible[f.IntN(len(plausible))]
	}
	limits := []int{1, 10, 64, MaxDenialHost + 1, MaxProgramPath + 1, MaxArtifactsMessage + 1, MaxMessage + 1, 4 * MaxMessage}
	var b strings.Builder
	first, second := characters[f.IntN(len(characters))], characters[f.IntN(len(characters))]
	for limit := f.IntN(limits[f.IntN(len(limits))] + 1); b.Len() < limit; {
		if f.IntN(4) > 0 {
			b.WriteString(first)
		} else {
			b.WriteString(second)
		}
	}
	return b.String()
}

func (f *filler) number() int64 {
	numbers := []int64{0, 1, 2, 137, 255, 256, -1, MaxArtifactBytes, MaxArtifactBytes + 1, math.MaxInt64, math.MinInt64, f.Int64(), f.Int64N(100)}
	return numbers[f.IntN(len(numbers))]
}

func (f *filler) length() int {
	lengths := []int{0, 1, 3, MaxPaths + 1, MaxDenials + 1, MaxPrograms + 1}
	return lengths[f.IntN(len(lengths))]
}

func (f *filler) time() time.Time {
	zone := time.FixedZone("", []int{0, 3600, 30 * 3600}[f.IntN(3)])
	return time.Date([]int{1, 2026, 9999, 12345, -5}[f.IntN(5)], 12, 31, 23, 59, 59, 999999999, zone)
}

func (f *filler) bytes() []byte {
	sizes := []int{0, 1, 100, 100, 100, MaxStreamBytes/2 + 1, MaxStreamBytes + 1}
	size := f.IntN(sizes[f.IntN(len(sizes))] + 1)
	if size == 0 {
		return nil
	}
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(f.Uint32())
	}
	return out
}

// fill sets every field of a value, however deep. It fails the test for a kind of field that it doesn't know.
func (f *filler) fill(v reflect.Value) {
	switch kind := v.Kind(); {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(f.time()))
	case v.Type() == reflect.TypeFor[[]byte]():
		v.SetBytes(f.bytes())
	case kind == reflect.String:
		v.SetString(f.text())
	case kind == reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case v.CanInt():
		v.SetInt(f.number())
	case v.CanUint():
		v.SetUint(uint64(f.number()))
	case kind == reflect.Pointer:
		if v.SetZero(); f.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case kind == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), f.length(), 200))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case kind == reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	default:
		f.t.Fatalf("a field is a %s, which isn't filled", v.Type())
	}
}

// A field that is added to an outcome is filled too: without a bound in Validate it makes some outcome too large to be sent,
// and with one that Shorten doesn't keep it makes some outcome invalid.
func TestAnyOutcomeIsValidWhenItIsShortened(t *testing.T) {
	t.Parallel()
	reasons := map[string]int{}
	for seed := range uint64(120) {
		f := &filler{rand.New(rand.NewPCG(seed, 1)), t}
		o := &Outcome{}
		f.fill(reflect.ValueOf(o).Elem())
		before := *o
		o.Shorten()
		if err := o.Validate(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		raw, err := json.Marshal(o)
		if err != nil || len(raw) > MaxEncoded {
			t.Fatalf("seed %d: it takes %d bytes of JSON: %v", seed, len(raw), err)
		}
		read := &Outcome{}
		if err := json.Unmarshal(raw, read); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := read.Validate(); err != nil {
			t.Fatalf("seed %d: once it was sent: %v", seed, err)
		}
		if again, _ := json.Marshal(read); !bytes.Equal(again, raw) {
			t.Fatalf("seed %d: it isn't the same once it was sent", seed)
		}
		read.Shorten()
		if again, _ := json.Marshal(read); !bytes.Equal(again, raw) {
			t.Fatalf("seed %d: what was shortened is shortened again", seed)
		}
		if before.Started && !o.Started {
			t.Fatalf("seed %d: something that was started is said not to have been", seed)
		}
		reasons[o.Reason]++
	}
	if len(reasons) < 8 {
		t.Errorf("the outcomes have these reasons only: %v", reasons)
	}
}

func TestWhatShortenLeavesOutIsCounted(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", MaxProgramPath)
	sum := strings.Repeat("f", 64)
	o := &Outcome{
		Reason: Completed, Started: true, ExitCode: Exit(0),
		Executed: append(make(Programs, 0), Program{Path: "/" + long + "end", Count: 2}, Program{Path: "", Count: 3}), MoreExecuted: 4,
		Denied:     Denials{{Host: `"` + strings.Repeat(`\x01`, 253) + `"`, Count: 5}, {Host: "a.example.com", Count: -1}},
		MoreDenied: -6,
		Artifacts: &Artifacts{Kept: ArtifactList{
			{Path: "a", SHA256: sum, MediaType: "a/b"}, {Path: "a", SHA256: sum, MediaType: "a/b"}, {Path: "b", MediaType: "a/b"}}},
		Redactions: Redactions{{Name: "no name", Stream: RedactedStdout, Count: 1}, {Name: "TOKEN", Stream: RedactedStdout, Count: 1}},
	}
	o.Shorten()
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := o.Executed[0]; !strings.HasPrefix(got.Path, "...é") || !strings.HasSuffix(got.Path, "éend") || len(got.Path) < MaxProgramPath-2 || got.Count != 2 {
		t.Errorf("executed: %+v", got)
	}
	if got := o.Denied[0]; !strings.HasPrefix(got.Host, `"\x01\x01`) || len(got.Host) != MaxDenialHost {
		t.Errorf("denied: %+v", got)
	}
	if len(o.Executed) != 1 || o.MoreExecuted != 7 || len(o.Denied) != 1 || o.MoreDenied != 0 {
		t.Errorf("%d and %d more were executed, %d and %d more denied", len(o.Executed), o.MoreExecuted, len(o.Denied), o.MoreDenied)
	}
	if a := o.Artifacts; len(a.Kept) != 1 || a.Omitted != 2 || a.Message == "" {
		t.Errorf("artifacts: %+v", a)
	}
	if want := (Redactions{{Name: "TOKEN", Stream: RedactedStdout, Count: 1}}); !cmp.Equal(o.Redactions, want) {
		t.Errorf("redactions: %+v", o.Redactions)
	}
}

func TestAnEndThatCantBeBecomesTheOneByTheExitCode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ outcome, want Outcome }{
		"a code of success": {Outcome{Reason: "Other", Started: true, ExitCode: Exit(0)}, Outcome{Reason: Completed, Started: true, ExitCode: Exit(0)}},
		"a code of failure": {Outcome{Reason: Completed, Started: true, ExitCode: Exit(7)}, Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(7)}},
		"no code":           {Outcome{Reason: Completed, Started: true}, Outcome{Reason: Signaled, Started: true}},
		"a signal with a code": {Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(7), Signal: "SIGKILL"},
			Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(7)}},
		"a code of nothing": {Outcome{Reason: CommandNotFound, ExitCode: Exit(0)}, Outcome{Reason: CommandNotFound}},
		"nothing":           {Outcome{}, Outcome{Reason: InvalidEnvironment}},
		"a file with a code": {Outcome{Reason: FileNotFound, ExitCode: Exit(0), File: &File{}},
			Outcome{Reason: FileNotFound, Started: true, File: &File{}}},
		"a file with another reason": {Outcome{Reason: Signaled, Started: true, File: &File{}}, Outcome{Reason: FileError, Started: true, File: &File{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.outcome
			if got.Shorten(); !cmp.Equal(got, c.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
