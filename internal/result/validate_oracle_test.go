package result

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"
)

// isLegal says what an outcome may be without Shorten: each bound is here by itself.
func isLegal(o *Outcome) bool {
	texts := len(o.Message) <= MaxMessage && len(o.Refusal) <= MaxMessage && len(o.WorkingDir) <= MaxWorkingDir
	counts := o.DurationMS >= 0 && o.LeftRunning >= 0 && o.MoreExecuted >= 0 && o.MoreRefused >= 0 && o.MoreDenied >= 0
	signal := o.Signal == "" || o.mayHaveSignal() && isSignalName(o.Signal)
	return o.validateReason() == nil && texts && counts && signal && areLegalStreams(o) && areLegalLists(o) &&
		isLegalUsage(o) && isLegalIsolation(o.Isolation) && isLegalFile(o.File) && areLegalArtifacts(o)
}

func areLegalStreams(o *Outcome) bool {
	for _, s := range []*Stream{&o.Stdout, &o.Stderr, &o.Output} {
		kept := len(s.Head) + len(s.Tail)
		whole := s.Bytes == int64(kept)
		hash := s.SHA256 == "" || isHash(s.SHA256) && (!whole || s.SHA256 == s.hash())
		if kept > MaxStreamBytes || s.Bytes < int64(kept) || !hash || !o.Started && s.Bytes != 0 {
			return false
		}
	}
	return true
}

func areLegalLists(o *Outcome) bool {
	for _, list := range []Programs{o.Executed, o.Refused} {
		if len(list) > MaxPrograms || slices.ContainsFunc(list, func(p Program) bool { return !p.isValid() }) {
			return false
		}
	}
	return len(o.Denied) <= MaxDenials && !slices.ContainsFunc(o.Denied, func(d NetworkDenial) bool { return !d.isValid() }) &&
		len(o.Redactions) <= MaxRedactions && !slices.ContainsFunc(o.Redactions, func(r Redaction) bool { return !r.isValid() })
}

func isLegalUsage(o *Outcome) bool {
	u := o.Usage
	if u == nil {
		return true
	}
	for _, n := range []*int64{u.CPUMilliseconds, u.MaxRSSBytes, u.ReadBytes, u.WrittenBytes, u.PeakProcesses} {
		if n != nil && *n < 0 {
			return false
		}
	}
	return o.Started && o.File == nil
}

func isLegalIsolation(i *Isolation) bool {
	if i == nil {
		return true
	}
	for _, list := range i.pathLists() {
		if len(*list) > MaxPaths || slices.ContainsFunc(*list, func(p string) bool { return len(p) > MaxProgramPath }) {
			return false
		}
	}
	return (i.Self == nil || i.Self.Check() == nil) && isNetwork(i.Network)
}

func isLegalFile(f *File) bool {
	if f == nil {
		return true
	}
	counts := []int64{f.Skipped.Binary, f.Skipped.Denied, f.Skipped.Unreadable, f.Skipped.Deep, f.Skipped.LongLines}
	for _, n := range []*int64{f.Bytes, f.Lines, f.Matches, f.NextOffset, f.Replaced} {
		if n != nil {
			counts = append(counts, *n)
		}
	}
	return fitsPath(f.Path) && (f.SHA256 == "" || isHash(f.SHA256)) && slices.Min(counts) >= 0
}

func areLegalArtifacts(o *Outcome) bool {
	a := o.Artifacts
	if a == nil {
		return true
	}
	known := artifactPaths{}
	for i := range a.Kept {
		if !known.add(&a.Kept[i]) {
			return false
		}
	}
	return o.Started && len(a.Kept) <= MaxArtifacts && a.Omitted >= 0 && fitsJSON(a.Message, MaxArtifactsMessage) && utf8.ValidString(a.Message)
}

// Each outcome here is one that was legal, but for a field or two: what Validate accepts is what the bounds say.
func TestValidateAcceptsWhatIsWithinEachBound(t *testing.T) {
	t.Parallel()
	legal := 0
	for seed := range uint64(100) {
		f := &filler{rand.New(rand.NewPCG(seed, 2)), t}
		o := &Outcome{}
		f.fill(reflect.ValueOf(o).Elem())
		o.Shorten()
		for range f.IntN(3) {
			v := reflect.ValueOf(o).Elem()
			f.fill(v.Field(f.IntN(v.NumField())))
		}
		raw, err := json.Marshal(o)
		if err != nil {
			continue
		}
		read := &Outcome{}
		if err := json.Unmarshal(raw, read); err != nil {
			continue
		}
		before, _ := json.Marshal(read)
		err = read.Validate()
		if want := isLegal(read); (err == nil) != want {
			t.Errorf("seed %d: legal is %t, and Validate says: %v", seed, want, err)
		}
		if after, _ := json.Marshal(read); !bytes.Equal(before, after) {
			t.Errorf("seed %d: Validate changes it", seed)
		}
		if err == nil {
			legal++
		}
	}
	if legal < 20 || legal > 80 {
		t.Errorf("%d of 100 are legal: this tests something else", legal)
	}
}
