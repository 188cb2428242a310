package result

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"regexp"
	"sync"
)

// Bounds of what Validate accepts, in bytes.
const (
	// MaxMessage bounds a message.
	MaxMessage = 4 << 10
	// MaxWorkingDir bounds a directory's path, as the kernel does.
	MaxWorkingDir = 4096
	// MaxStreamBytes bounds what is kept of one stream: the most that a policy may ask for.
	MaxStreamBytes = 256 << 10
	// MaxEncoded bounds the JSON of an outcome that Validate accepts: a little more than the largest takes.
	MaxEncoded = 1700 << 10
)

// What texts of a fixed form look like.
var (
	isHash          = form(`[0-9a-f]{64}`)
	isSignalName    = form(`SIG[A-Z0-9+]{1,29}`)
	isRedactionName = form(`[A-Za-z0-9_]+`)
	isMediaType     = form(`[a-z0-9.+;= -]+/[a-z0-9./+;= -]+`)
)

// form returns what says whether a text has a form. It is compiled when it is asked for first: most processes ask for none.
func form(expr string) func(text string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:` + expr + `)$`) })
	return func(text string) bool { return compiled().MatchString(text) }
}

// exitRule says which exit codes go with a reason.
type exitRule int

const (
	exitNone    exitRule = iota // never started
	exitZero                    // 0
	exitOwn                     // 1 to 255
	exitForced                  // started, and none of its own
	exitStopped                 // none of its own, whether it was started or not
)

var exitRules = map[string]exitRule{
	Completed:            exitZero,
	NonZeroExit:          exitOwn,
	TimedOut:             exitForced,
	Signaled:             exitForced,
	OOMKilled:            exitForced,
	CommandNotFound:      exitNone,
	WorkingDirNotFound:   exitNone,
	WorkingDirNotAllowed: exitNone,
	InvalidEnvironment:   exitNone,
	StartTimeout:         exitNone,
	CancelRequested:      exitStopped,
	PodLost:              exitStopped,
	SessionEnded:         exitStopped,
	IsolationUnavailable: exitNone,
}

// Validate says whether the outcome is one that a supervisor could have reported: a known reason, an exit
// code, signal and output that go with it, every field within its bounds, and, where all of a stream was
// kept, the bytes that its SHA-256 names. That is one which Shorten leaves as it is.
func (o *Outcome) Validate() error {
	if err := o.validateReason(); err != nil {
		return err
	}
	legal := *o
	legal.Isolation, legal.File, legal.Artifacts = cloned(o.Isolation), cloned(o.File), cloned(o.Artifacts)
	legal.Shorten()
	is, may := reflect.ValueOf(*o), reflect.ValueOf(legal)
	for i := range is.NumField() {
		if !reflect.DeepEqual(is.Field(i).Interface(), may.Field(i).Interface()) {
			return fmt.Errorf("%s is more than a supervisor reports, or doesn't go with the rest", is.Type().Field(i).Name)
		}
	}
	return nil
}

// cloned is a copy of what Shorten changes in its place.
func cloned[T any](v *T) *T {
	if v == nil {
		return nil
	}
	c := *v
	return &c
}

// mayHaveSignal says that a process was started, and didn't end by itself.
func (o *Outcome) mayHaveSignal() bool { return o.Started && o.ExitCode == nil && o.File == nil }

func (o *Outcome) validateReason() error {
	if o.File != nil {
		if !o.Started || o.ExitCode != nil || !fileReasons[o.Reason] {
			return fmt.Errorf("reason %.64q with its exit code isn't how a file action ends", o.Reason)
		}
		return nil
	}
	rule, known := exitRules[o.Reason]
	switch {
	case !known:
		return fmt.Errorf("reason %.64q is not one that a supervisor reports", o.Reason)
	case !rule.allows(o.Started, o.ExitCode):
		return fmt.Errorf("reason %s doesn't go with its exit code", o.Reason)
	}
	return nil
}

// allows says whether a process that was started, or wasn't, may have ended with that code.
func (r exitRule) allows(started bool, code *int32) bool {
	if code == nil {
		return r == exitStopped || r == exitForced && started || r == exitNone && !started
	}
	switch c := *code; r {
	case exitZero:
		return started && c == 0
	case exitOwn:
		return started && c >= 1 && c <= 255
	default:
		return false
	}
}

// hasOwnHash says that the stream has no hash, or one that can be its own.
func (s *Stream) hasOwnHash() bool {
	return s.SHA256 == "" || isHash(s.SHA256) && (!s.Whole() || s.SHA256 == s.hash())
}

func (s *Stream) hash() string {
	h := sha256.New()
	h.Write(s.Head)
	h.Write(s.Tail)
	return hex.EncodeToString(h.Sum(nil))
}
