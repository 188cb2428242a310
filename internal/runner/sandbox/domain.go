package sandbox

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/filter"
	"toolcall.dev/operator/internal/runner/sandbox/kernel"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// UnavailableError says that the node can't hold the rules. Nothing may be executed then.
type UnavailableError struct {
	// Missing is what the node doesn't give, as a phrase.
	Missing string
}

func (e *UnavailableError) Error() string { return "the node has no " + e.Missing }

// Domain is what one call's processes will be held to, ready to be entered.
type Domain struct {
	rules *rules.Rules
	// programs is nil when any program may be executed.
	programs *programs.List
	// ruleset is nil without Landlock.
	ruleset *kernel.RuleSet
	// writePaths are the directories and devices that can be written to, without links, when the rules restrict that. They are
	// looked up once: what counts as writable is what is granted.
	writePaths []string
	// way is how the node holds it.
	way rules.Way
	// mayTrace says that a command can be held until the thread that started it has ended.
	mayTrace bool
	// isOffline says that only the network is denied.
	isOffline bool
}

// Prepare resolves rules in this pod for a command with a PATH, and makes the command's domain. The error is
// an UnavailableError when the node lacks what the rules need.
func Prepare(r *rules.Rules, path string, support rules.Support) (*Domain, error) {
	way, missing := support.WayFor(r)
	if missing != "" {
		return nil, &UnavailableError{missing}
	}
	d := &Domain{rules: r, way: way, mayTrace: support.Trace}
	if err := d.prepare(path); err != nil {
		d.Close()
		return nil, fmt.Errorf("prepare the command's domain: %w", err)
	}
	return d, nil
}

// Offline is the domain of a command that may do everything but reach a network.
func Offline() *Domain { return &Domain{rules: &rules.Rules{}, isOffline: true} }

func (d *Domain) prepare(path string) (err error) {
	handled := uint64(kernel.AccessRefer)
	if d.rules.Programs != nil {
		handled |= kernel.AccessExecute | kernel.AccessRead | kernel.AccessContent
	}
	if d.rules.ReadPaths != nil {
		handled |= kernel.AccessRead
	}
	if d.rules.WritePaths != nil {
		handled |= kernel.AccessWrite
	}
	var handledNet uint64
	if d.rules.Connections && !d.way.MakesAllSockets() {
		// No rule grants it: a socket that is put in another's place connects nowhere.
		handledNet = unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if d.way.Landlock > 0 {
		if d.ruleset, err = kernel.NewRuleSet(handled, handledNet, d.way.Landlock); err != nil {
			return err
		}
	}
	if d.rules.WritePaths != nil {
		d.writePaths = programs.Roots(slices.Concat(d.rules.WritePaths, programs.DevicePaths))
	}
	if d.rules.Programs != nil {
		d.programs = programs.Resolve(d.rules, d.writePaths, path, func(fd int) {
			d.ruleset.Allow(fd, kernel.AccessExecute|kernel.AccessRead)
		})
	}
	if d.ruleset == nil {
		return nil
	}
	d.ruleset.AllowPath("/", kernel.AccessRefer)
	d.grantReads(path)
	d.grantWrites()
	return d.ruleset.Err()
}

// Close gives up a domain that isn't entered any more.
func (d *Domain) Close() { d.ruleset.Close() }

// NeedsStage reports whether the domain is entered in a stage: a process that starts another one waits until that has
// executed its program, and can't answer for it meanwhile. Nor can a thread be kept from a command that can't be held. A command without a
// domain needs none.
func (d *Domain) NeedsStage() bool {
	return d != nil && (d.programs != nil || d.isScoped() && !d.mayTrace)
}

// isScoped reports whether the domain keeps signals inside. Then the command must not run before the thread that entered the domain has
// ended, which it could signal; elsewhere it may do so in any case.
func (d *Domain) isScoped() bool { return d.way.Landlock >= rules.ABIScopes }

// restrictThread puts the calling thread and what it starts into the domain of a ruleset, and sets the filter. It returns
// the filter's listener, if the filter asks.
func restrictThread(ruleset int, o filter.Options) (listener int, err error) {
	if ruleset != kernel.NoRuleSet {
		if err := kernel.RestrictSelf(ruleset); err != nil {
			return -1, err
		}
	}
	return filter.Install(o)
}

// Allows reports whether a path leads to a listed program. It is a hint which of several files to start.
func (d *Domain) Allows(path string) bool { return d.programs == nil || d.programs.Allows(path) }

// Isolation says which walls hold.
func (d *Domain) Isolation() *result.Isolation {
	if d.isOffline {
		return &result.Isolation{}
	}
	i := &result.Isolation{
		Way:         d.way.Name(),
		LandlockABI: d.way.Landlock,
		Reads:       d.way.Landlock > 0 && d.rules.ReadPaths != nil,
		Writes:      d.way.Landlock > 0 && d.rules.WritePaths != nil,
		Signals:     d.isScoped(),
	}
	if d.programs != nil {
		d.programs.Report(i)
	}
	return i
}

// AskMultiCall returns which of the listed multi-call programs run their applets without executing them. ask runs a command in a domain,
// which it closes, and returns how the command ended.
func (d *Domain) AskMultiCall(ask func(d *Domain, argv []string) result.Outcome) (unheld []string, err error) {
	if d.programs == nil {
		return nil, nil
	}
	return d.programs.AskMultiCall(func(program string, argv []string) (result.Outcome, error) {
		asked, err := d.questionDomain(program)
		if err != nil {
			return result.Outcome{}, err
		}
		return ask(asked, argv), nil
	})
}

// questionDomain is a domain in which a program may be executed by the names of its shell and starters, and nothing else. It
// may write to devices only, and read what programs need.
func (d *Domain) questionDomain(program string) (*Domain, error) {
	q := &Domain{
		rules: &rules.Rules{ReadPaths: []string{}, WritePaths: []string{}, Programs: &rules.Programs{Own: program}},
		way:   d.way, mayTrace: d.mayTrace,
	}
	if err := q.prepare(""); err != nil {
		q.Close()
		return nil, err
	}
	q.programs.AllowStarters()
	return q, nil
}
