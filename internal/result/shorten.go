package result

import (
	"math"
	"time"

	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// Shorten makes an outcome one that a runner can report, whatever it says: a result that the operator refuses is lost. All bounds are
// here: what it leaves as it is, also when its JSON is read elsewhere, Validate accepts. It cuts the middle of a stream, the end of a
// message or a host, and the beginning of a program's path.
// It leaves out the path of a directory or a file that is too long, because a part of it names another one, and what can't be.
//
// What is redacted must be redacted before: a part of a value isn't recognized.
func (o *Outcome) Shorten() {
	o.Message, o.Refusal = firstText(o.Message, MaxMessage), firstText(o.Refusal, MaxMessage)
	o.WorkingDir = WholePath(o.WorkingDir)
	if o.File != nil {
		o.File.shorten()
	}
	o.correctEnd()
	for _, s := range []*Stream{&o.Stdout, &o.Stderr, &o.Output} {
		s.shorten()
		if !o.Started && s.Bytes != 0 {
			*s = Stream{}
		}
	}
	o.Executed, o.MoreExecuted = shortened(o.Executed, MaxPrograms, o.MoreExecuted, (*Program).correct)
	o.Refused, o.MoreRefused = shortened(o.Refused, MaxPrograms, o.MoreRefused, (*Program).correct)
	o.Denied, o.MoreDenied = shortened(o.Denied, MaxDenials, o.MoreDenied, (*NetworkDenial).correct)
	o.Isolation.shorten()
	if o.Usage = o.Usage.shortened(); !o.Started || o.File != nil {
		o.Usage = nil
	}
	o.Redactions, _ = shortened(o.Redactions, MaxRedactions, 0, (*Redaction).correct)
	switch {
	case o.Artifacts == nil:
	case o.Started:
		o.Artifacts.shorten()
	default:
		o.Artifacts = nil
	}
}

// correctEnd makes the reason, the exit code, the signal and the times go together. Whether something was started stays, but
// for a file action, which is one that was begun.
func (o *Outcome) correctEnd() {
	if o.validateReason() != nil {
		o.Reason, o.ExitCode = o.reasonByCode()
		o.Started = o.Started || o.File != nil
	}
	if o.Signal != "" && (!o.mayHaveSignal() || !isSignalName(o.Signal)) {
		o.Signal = ""
	}
	o.DurationMS, o.LeftRunning = max(o.DurationMS, 0), max(o.LeftRunning, 0)
	for _, at := range []*time.Time{&o.StartTime, &o.CompletionTime} {
		if _, err := at.MarshalJSON(); err != nil {
			*at = time.Time{}
		}
	}
}

// reasonByCode is how something ended whose reason doesn't go with the rest.
func (o *Outcome) reasonByCode() (reason string, code *int32) {
	rule, isKnown := exitRules[o.Reason]
	switch c := o.ExitCode; {
	case o.File != nil && fileReasons[o.Reason]:
		return o.Reason, nil
	case o.File != nil:
		return FileError, nil
	case !o.Started && isKnown && rule.allows(false, nil):
		return o.Reason, nil
	case !o.Started:
		return InvalidEnvironment, nil
	case c != nil && *c == 0:
		return Completed, c
	case c != nil && *c >= 1 && *c <= 255:
		return NonZeroExit, c
	default:
		return Signaled, nil
	}
}

func (s *Stream) shorten() {
	*s = *s.shortened(MaxStreamBytes / 2)
	s.Bytes = s.total()
	if !s.hasOwnHash() {
		s.SHA256 = ""
	}
}

func (p *Program) correct() (count int64, isValid bool) {
	p.Path = lastText(p.Path, MaxProgramPath)
	return p.Count, p.isValid()
}

func (d *NetworkDenial) correct() (count int64, isValid bool) {
	d.Host = firstText(d.Host, MaxDenialHost)
	return d.Count, d.isValid()
}

func (r *Redaction) correct() (count int64, isValid bool) { return 0, r.isValid() }

func (i *Isolation) shorten() {
	if i == nil {
		return
	}
	if i.Self != nil && i.Self.Check() != nil {
		i.Self = nil
	}
	i.NoNetwork = firstText(i.NoNetwork, MaxProgramPath)
	if !rules.IsWay(i.Way) {
		i.Way = ""
	}
	if !isNetwork(i.Network) {
		i.Network = ""
	}
	for _, list := range i.pathLists() {
		var kept Paths
		for _, path := range (*list)[:min(len(*list), MaxPaths)] {
			kept = append(kept, lastText(path, MaxProgramPath))
		}
		*list = kept
	}
}

func (f *File) shorten() {
	f.Path = textOf(f.Path)
	if !fitsPath(f.Path) {
		f.Path = ""
	}
	if !isHash(f.SHA256) {
		f.SHA256 = ""
	}
	dropNegative(&f.Bytes, &f.Lines, &f.Matches, &f.NextOffset, &f.Replaced)
	s := &f.Skipped
	for _, n := range []*int64{&s.Binary, &s.Denied, &s.Unreadable, &s.Deep, &s.LongLines} {
		*n = max(*n, 0)
	}
}

func (a *Artifacts) shorten() {
	a.Message, a.Omitted = ArtifactsMessage(a.Message), max(a.Omitted, 0)
	known := artifactPaths{}
	var kept ArtifactList
	for i := range a.Kept {
		if len(kept) == MaxArtifacts || !known.add(&a.Kept[i]) {
			a.Omitted = addCounts(a.Omitted, 1)
			continue
		}
		kept = append(kept, a.Kept[i])
	}
	if len(kept) < len(a.Kept) && a.Message == "" {
		a.Message = "Files that can't be listed were left out."
	}
	a.Kept = kept
}

// dropNegative leaves out what can't be a number of something.
func dropNegative(numbers ...**int64) {
	for _, n := range numbers {
		if *n != nil && **n < 0 {
			*n = nil
		}
	}
}

// addCounts adds what isn't less than nothing, up to the largest number.
func addCounts(a, b int64) int64 {
	if b = max(b, 0); a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// WholePath is the path of a directory as text; empty for one that is too long.
func WholePath(path string) string {
	if path = textOf(path); len(path) > MaxWorkingDir {
		return ""
	}
	return path
}

func textOf(text string) string { return toText([]byte(text)) }

// firstText is the beginning of a text, in whole characters of at most limit bytes.
func firstText(text string, limit int) string {
	return toText(prefix([]byte(text), limit, textCost))
}

// lastText is a text of at most limit bytes, which lacks its beginning if it is too long: the end of a path tells more.
func lastText(text string, limit int) string {
	const more = "..."
	if text = textOf(text); len(text) <= limit {
		return text
	}
	return more + string(TrimPartialStart([]byte(text[len(text)-limit+len(more):])))
}
