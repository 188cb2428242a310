package initialize

import "slices"

// preset is a policy by its name: what a plan begins with.
type preset struct {
	name string
	// tools are those of the agent unless the flags name others. utilities come with bash.
	tools, utilities []string
	// readPaths and writePaths are those of the policy; readPaths are nil for all files.
	readPaths, writePaths []string
	// loopback has calls reach servers in their own pod where no hosts are listed; otherwise they have no network at all.
	loopback bool
	// runsBuilt lets calls run programs that they made.
	runsBuilt bool
	// deniedModules are those of code; nil for the API's default.
	deniedModules              []string
	defaultSeconds, maxSeconds int32
}

const (
	workspace = "/workspace"
	temporary = "/tmp"
)

// readers are the utilities that only read.
var (
	readers = []string{
		"awk", "basename", "cat", "cmp", "comm", "cut", "date", "diff", "dirname", "du", "env", "expr", "file", "find", "grep", "head", "id", "jq",
		"ls", "nl", "od", "readlink", "realpath", "rg", "sed", "seq", "sha256sum", "sort", "stat", "tac", "tail", "tr", "tree", "uname", "uniq",
		"wc", "which", "xargs",
	}
	utilities = slices.Concat(readers, []string{
		"chmod", "cp", "gunzip", "gzip", "ln", "mkdir", "mktemp", "mv", "patch", "rm", "rmdir", "sleep", "tar", "tee", "timeout", "touch", "unzip", "zip",
	})
)

// presets are the policies that init writes, the default one among them.
var presets = []preset{
	{
		name: "read-only", tools: []string{"bash", "git", toolFileRead}, utilities: readers,
		readPaths: []string{workspace}, writePaths: []string{}, defaultSeconds: 60, maxSeconds: 300,
	},
	{
		name: "coding", tools: []string{"bash", "git", "make", "python", toolFileRead, toolFileWrite}, utilities: utilities,
		writePaths: []string{workspace, temporary}, loopback: true, deniedModules: []string{}, defaultSeconds: 120, maxSeconds: 600,
	},
	{
		name: "data", tools: []string{"python", toolFileRead, toolFileWrite}, utilities: utilities,
		writePaths: []string{workspace, temporary}, defaultSeconds: 120, maxSeconds: 900,
		deniedModules: []string{"subprocess", "socket", "ctypes", "pickle", "marshal", "importlib"},
	},
	{
		name: "ci", tools: []string{"bash", "git", "make", "python", toolFileRead, toolFileWrite}, utilities: utilities,
		writePaths: []string{workspace, temporary}, loopback: true, runsBuilt: true, deniedModules: []string{}, defaultSeconds: 600, maxSeconds: 3600,
	},
}

func presetNames() (names []string) {
	for i := range presets {
		names = append(names, presets[i].name)
	}
	return names
}
