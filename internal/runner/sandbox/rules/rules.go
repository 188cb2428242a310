// Package rules is what a policy says about the processes of one call, and what a node can hold, as plain data.
//
// The operator writes Rules, the runner's sandbox holds them. The package imports the standard library only, so
// that programs which only decide or show rules don't link what enforces them.
package rules

import "strings"

// Rules hold for every process of one call. Relative paths and names never come from the call.
type Rules struct {
	// Policy is the name of the policy, for messages.
	Policy string `json:"policy,omitempty"`
	// Programs says which programs may be executed; nil for any.
	Programs *Programs `json:"programs,omitempty"`
	// ReadPaths are absolute paths of files, and of directories below which files may be read. Nil doesn't restrict
	// reading, an empty list allows only what programs need: the system's directories and the listed programs.
	ReadPaths []string `json:"readPaths,omitzero"`
	// WritePaths are absolute paths of files, and of directories below which files may be made, written, moved and
	// removed. Nil doesn't restrict writing, an empty list allows only devices such as /dev/null, and /dev/shm.
	WritePaths []string `json:"writePaths,omitzero"`
	// Connections says that the runner decides about each connection. It has no meaning for a call without a network.
	Connections bool `json:"connections,omitempty"`
}

// WithConnections returns rules by which connections are decided about too. The rules that it is given, nil for none, stay as they are.
func WithConnections(r *Rules) *Rules {
	held := Rules{}
	if r != nil {
		held = *r
	}
	held.Connections = true
	return &held
}

// WayOut says what of the rules to give up for a node that doesn't give all of them, as a phrase that follows "set".
func (s Support) WayOut(r *Rules) string {
	rest := *r
	rest.Connections = false
	var changes []string
	if r.Connections {
		changes = append(changes, "network.mode to None, or to Unrestricted, which holds no connection")
	}
	if s.Missing(&rest) == "" {
		return strings.Join(changes, "")
	}
	if r.Programs != nil {
		changes = append(changes, "binaries.enforcement to Name, which is weak")
	}
	if r.ReadPaths != nil || r.WritePaths != nil {
		changes = append(changes, "no paths under files")
	}
	return strings.Join(changes, "; and ")
}

// Programs are the programs that a call may execute.
type Programs struct {
	// Allowed holds names, absolute paths, and absolute paths that end in "/". A name is looked up in the PATH of the
	// command, outside writable paths; the program is the file that it leads to. A path is that file, and one that ends
	// in "/" is everything below that directory.
	Allowed []string `json:"allowed,omitempty"`
	// Helpers maps an entry of Allowed to what that program executes itself: names, absolute paths and globs of them.
	// They add to the built-in table.
	Helpers map[string][]string `json:"helpers,omitempty"`
	// AllowWritable permits entries of Allowed that the call can write to. Whatever it puts there may run.
	AllowWritable bool `json:"allowWritable,omitempty"`
	// AllowMultiCall permits listed programs that run other programs' work without executing them. Nothing holds what they
	// run so.
	AllowMultiCall bool `json:"allowMultiCall,omitempty"`
	// Own is the shell or interpreter that the environment gives the call: argv[0] of a Shell or Code call. It may be
	// executed without being listed.
	Own string `json:"own,omitempty"`
}

// Support is what a node gives a runner, as the runner found out at its start.
type Support struct {
	// LandlockABI is the version of Landlock; 0 when it isn't there.
	LandlockABI int `json:"landlockABI,omitempty"`
	// Listener says that a seccomp filter can ask the runner, AddDescriptor that the runner can answer with a descriptor.
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
	// ABIPaths holds programs and paths: Linux 6.2.
	ABIPaths = 3
	// ABIConnections holds TCP connections: Linux 6.7.
	ABIConnections = 4
	// ABIScopes holds signals and abstract sockets: Linux 6.12.
	ABIScopes = 6
)

// Missing returns what the rules need and the node doesn't give, as a phrase that follows "no"; it is empty when nothing
// is missing. Signals that can't be held are no reason to refuse a call.
func (s Support) Missing(r *Rules) string {
	switch {
	case s.LandlockABI == 0:
		return "Landlock"
	case r.Connections && s.LandlockABI < ABIConnections:
		return "Landlock of Linux 6.7 or later, which holds connections"
	case s.LandlockABI < ABIPaths:
		return "Landlock of Linux 6.2 or later"
	case !s.Listener:
		return "seccomp filter with a listener"
	case r.Programs == nil && !r.Connections:
		return ""
	case !s.AddDescriptor:
		return "way to pass descriptors through a seccomp listener"
	case !s.ReadMemory:
		return "right to read the memory of a call's processes"
	case !s.Trace && r.Programs != nil:
		return "right to trace a call's processes"
	default:
		return ""
	}
}
