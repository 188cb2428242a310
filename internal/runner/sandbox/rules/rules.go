// Package rules is what a policy says about the processes of one call, and what a node can hold, as plain data.
//
// The operator writes Rules, the runner's sandbox holds them. The package imports the standard library only, so
// that programs which only decide or show rules don't link what enforces them.
package rules

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
	// Beside says that other calls run at the same time under the same user, as the runner knows: those of a session.
	Beside bool `json:"-"`
}

// holdsPaths reports whether the rules restrict what is read or written.
func (r *Rules) holdsPaths() bool { return r.ReadPaths != nil || r.WritePaths != nil }

// WithConnections returns rules by which connections are decided about too. The rules that it is given, nil for none, stay as they are.
func WithConnections(r *Rules) *Rules {
	held := Rules{}
	if r != nil {
		held = *r
	}
	held.Connections = true
	return &held
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
