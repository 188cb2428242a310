package result

import "toolcall.dev/operator/internal/runner/sandbox/rules"

// Bounds of what an outcome says about programs.
const (
	// MaxPrograms is how many programs are listed as executed, and how many as refused: more than a status lists.
	MaxPrograms = 128
	// MaxPaths is how many paths each list of Isolation holds.
	MaxPaths = 16
	// MaxProgramPath bounds a program's path, and any path of Isolation, in bytes.
	MaxProgramPath = 256
)

// Rules by which a program is refused.
const (
	// RuleNotListed says that the policy doesn't list the program.
	RuleNotListed = "NotListed"
	// RuleInterpreter says that the policy doesn't list the program that the first line of a script names.
	RuleInterpreter = "Interpreter"
	// RuleLoader says that a loader was started by hand, which would run any file.
	RuleLoader = "Loader"
	// RuleName says that the policy lists the file under other names, and it does what it is called.
	RuleName = "Name"
	// RuleUnnamed says that the file has no name: it is in memory, or was removed.
	RuleUnnamed = "Unnamed"
	// RuleChanged says that another program than the one looked at was about to run. Its process was killed.
	RuleChanged = "Changed"
	// RuleUnreadable says that the process can't be looked at.
	RuleUnreadable = "Unreadable"
	// RuleUnreadableFile says that the call's user may execute the file and not read it. Its process couldn't be looked at.
	RuleUnreadableFile = "UnreadableFile"
)

// Program is a program that was executed or refused.
type Program struct {
	// Path is its file without links, or a multi-call program's name in the directory of its file. One that is too long
	// lacks its beginning.
	Path  string `json:"path"`
	Count int64  `json:"count"`
	// Rule is why it was refused: one of the constants.
	Rule string `json:"rule,omitempty"`
}

// Programs is a list of at most MaxPrograms.
type Programs = List[Program]

// Paths is a list of at most MaxPaths.
type Paths = List[string]

// What of the network a call's processes had.
const (
	// NetworkNone says that the runner's filter refused them all sockets but Unix sockets.
	NetworkNone = "None"
	// NetworkHeld says that the runner decided about each connection.
	NetworkHeld = "Held"
	// NetworkPod says that the runner held nothing: they had what the pod has.
	NetworkPod = "Pod"
)

// Isolation is which walls held a call's processes.
type Isolation struct {
	// Self is what the processes started as; nil when an older runner doesn't say it.
	Self *rules.Self `json:"self,omitempty"`
	// Network is NetworkNone, NetworkHeld or NetworkPod; empty when an older runner doesn't say it.
	Network string `json:"network,omitempty"`
	// NoNetwork is what the node lacks for a network that neither the policy nor the call asked for; empty where that isn't why
	// there was none.
	NoNetwork string `json:"noNetwork,omitempty"`
	// Way is how the processes were held: one of the names of rules.Way; empty when nothing held them.
	Way string `json:"way,omitempty"`
	// LandlockABI is the version of Landlock that held; 0 when no domain did.
	LandlockABI int `json:"landlockABI"`
	// Programs says that only listed programs could be executed.
	Programs bool `json:"programs,omitempty"`
	// Reads and Writes say that only listed paths could be read or written.
	Reads  bool `json:"reads,omitempty"`
	Writes bool `json:"writes,omitempty"`
	// Signals says that processes outside the call, and their abstract sockets, couldn't be reached.
	Signals bool `json:"signals,omitempty"`
	// OpenUDP says that UDP was not held although the runner decided about each connection.
	OpenUDP bool `json:"openUDP,omitempty"`
	// NamesOnly are multi-call programs: the kernel holds the file, its names are only looked at.
	NamesOnly Paths `json:"namesOnly,omitempty"`
	// UnheldApplets are listed multi-call programs that run their applets without executing them, or didn't show that they
	// don't: nothing holds which.
	UnheldApplets Paths `json:"unheldApplets,omitempty"`
	// Writable are listed programs and directories that the call could write to.
	Writable Paths `json:"writable,omitempty"`
	// NotFound are entries of the policy that led to no program outside writable paths.
	NotFound Paths `json:"notFound,omitempty"`
}

func (p *Program) isValid() bool {
	return p.Count >= 1 && p.Path != "" && len(p.Path) <= MaxProgramPath && isRule(p.Rule)
}

// pathLists are the lists of paths.
func (i *Isolation) pathLists() []*Paths {
	return []*Paths{&i.NamesOnly, &i.UnheldApplets, &i.Writable, &i.NotFound}
}

func isNetwork(network string) bool {
	return network == "" || network == NetworkNone || network == NetworkHeld || network == NetworkPod
}

func isRule(rule string) bool {
	switch rule {
	case "", RuleNotListed, RuleInterpreter, RuleLoader, RuleName, RuleUnnamed, RuleChanged, RuleUnreadable, RuleUnreadableFile:
		return true
	default:
		return false
	}
}
