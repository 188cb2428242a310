package rules

import "strings"

// Support is what a node gives a runner, as the runner found out at its start.
type Support struct {
	// LandlockABI is the version of Landlock; 0 when it isn't there.
	LandlockABI int `json:"landlockABI,omitempty"`
	// Filter says that a process can filter its own system calls, Listener that such a filter can ask the runner, AddDescriptor
	// that the runner can answer with a descriptor. A runner that is older than Filter says Listener alone.
	Filter        bool `json:"filter,omitempty"`
	Listener      bool `json:"listener,omitempty"`
	AddDescriptor bool `json:"addDescriptor,omitempty"`
	// ReadMemory says that the runner can read what a process asks for, Trace that it can follow one through execve.
	ReadMemory bool `json:"readMemory,omitempty"`
	Trace      bool `json:"trace,omitempty"`
	// Self is what the runner found its own process to be; nil when an older runner doesn't say it.
	Self *Self `json:"self,omitempty"`
}

// Versions of Landlock, by what they can hold.
const (
	// ABIMoves lets files be moved and linked between directories, which any domain forbids before: Linux 5.19.
	ABIMoves = 2
	// ABITruncate holds what empties a file: Linux 6.2.
	ABITruncate = 3
	// ABIConnections holds TCP connections: Linux 6.7.
	ABIConnections = 4
	// ABIScopes holds signals and abstract sockets: Linux 6.12.
	ABIScopes = 6
)

// Names of ways, from the strongest.
const (
	// WayLandlock is a Landlock domain, with the gate where programs or connections are held.
	WayLandlock = "Landlock"
	// WayGate is the gate alone: it looks at each execve, and at what runs before the first instruction of it.
	WayGate = "Gate"
	// WayTrace is the second of these looks alone, where the kernel can't ask the runner.
	WayTrace = "Trace"
)

// Way is how a node holds the processes of a call.
type Way struct {
	// Landlock is the version of the domain; 0 for none.
	Landlock int
	// Trace says that programs are looked at only when they are about to run: nobody is asked before.
	Trace bool
}

// Name is one of the constants.
func (w Way) Name() string {
	switch {
	case w.Trace:
		return WayTrace
	case w.Landlock == 0:
		return WayGate
	default:
		return WayLandlock
	}
}

// IsWay reports whether a text is the name of a way, or empty.
func IsWay(name string) bool {
	return name == "" || name == WayLandlock || name == WayGate || name == WayTrace
}

// MakesAllSockets says that the runner makes and connects Unix sockets as well. It does where Landlock wouldn't stop another
// socket that is put in the place of one that the kernel connects.
func (w Way) MakesAllSockets() bool { return w.Landlock < ABIConnections }

// ListsTruncate says that the filter refuses to empty files in the ways that the domain can't hold.
func (w Way) ListsTruncate(r *Rules) bool {
	return r.WritePaths != nil && w.Landlock > 0 && w.Landlock < ABITruncate
}

// WayFor returns the strongest way in which the node holds rules, or what it lacks, as a phrase that follows "no". Signals that
// can't be held are no reason to refuse a call.
func (s Support) WayFor(r *Rules) (w Way, missing string) {
	w.Landlock = max(s.LandlockABI, 0)
	if w.Landlock < ABIMoves && !r.holdsPaths() && !r.Beside {
		w.Landlock = 0
	}
	holdsNothing := r.Programs == nil && !r.Connections && !r.holdsPaths()
	filters := s.Filter || s.Listener
	switch {
	case w.Landlock == 0 && (r.holdsPaths() || holdsNothing || !filters):
		return w, "Landlock"
	case w.Landlock == 0 && r.Beside:
		return w, "Landlock, which keeps calls of a session from each other's processes"
	case w.Landlock == 0 && r.Programs != nil && s.Self != nil && s.Self.User == 0:
		return w, "Landlock, without which root can write to every program"
	case !filters:
		return w, "seccomp filter"
	}
	unasked := s.unasked()
	switch {
	case r.Connections && unasked != "":
		return w, unasked
	case r.Programs == nil:
		return w, ""
	case !s.Trace:
		return w, "right to trace a call's processes"
	case !s.ReadMemory:
		return w, "right to read the memory of a call's processes"
	}
	w.Trace = unasked != ""
	return w, ""
}

// unasked is why the kernel can't ask the runner, or the runner not answer; empty if it can.
func (s Support) unasked() string {
	switch {
	case !s.Listener:
		return "seccomp filter with a listener, which holds connections"
	case !s.AddDescriptor:
		return "way to pass descriptors through a seccomp listener"
	case !s.ReadMemory:
		return "right to read the memory of a call's processes"
	default:
		return ""
	}
}

// Missing returns what the rules need and the node doesn't give, as a phrase that follows "no"; it is empty when nothing
// is missing.
func (s Support) Missing(r *Rules) string {
	_, missing := s.WayFor(r)
	return missing
}

// WayOut says what of the rules to give up for a node that doesn't give all of them, as a phrase that follows "set".
func (s Support) WayOut(r *Rules) string {
	var changes []string
	if r.Connections && s.Missing(&Rules{Connections: true, Beside: r.Beside}) != "" {
		changes = append(changes, "network.mode to None, or to Unrestricted with NetworkPolicies for the pods, which holds no connection here")
	}
	if r.Programs != nil && s.Missing(&Rules{Programs: r.Programs, Beside: r.Beside}) != "" {
		changes = append(changes, "binaries.enforcement to Name, which is weak")
	}
	if r.holdsPaths() && s.Missing(&Rules{ReadPaths: r.ReadPaths, WritePaths: r.WritePaths}) != "" {
		changes = append(changes, "no paths under files")
	}
	return strings.Join(changes, "; and ")
}
