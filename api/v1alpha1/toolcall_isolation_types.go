package v1alpha1

// ExecutedProgram is a program that was executed.
type ExecutedProgram struct {
	// path is the program's file without links, or a multi-call program's name in the directory of its file. A long one
	// lacks its beginning.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path"`

	// count is how often it was executed.
	// +required
	Count int64 `json:"count"`
}

// RefusedProgram is a program that was refused.
type RefusedProgram struct {
	// path is the program's file without links. A long one lacks its beginning.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path"`

	// count is how often it was tried.
	// +required
	Count int64 `json:"count"`

	// rule is why: NotListed (the policy doesn't list it), Interpreter (the first line of a script names a program that
	// isn't listed), Loader (a loader was started by hand, which would run any file), Name (a multi-call program under a
	// name that isn't listed), Unnamed (the file has no name: it is in memory, or was removed), Changed (another program
	// than the one looked at was about to run; its process was killed), Unreadable (the process can't be looked at),
	// UnreadableFile (the call's user may execute the program and not read it).
	// +kubebuilder:validation:MaxLength=64
	// +required
	Rule string `json:"rule"`
}

// SeccompMode is the mode of a process's seccomp filter.
// +kubebuilder:validation:Enum=Disabled;Strict;Filter
type SeccompMode string

// Modes of seccomp.
const (
	// SeccompDisabled is no filter.
	SeccompDisabled SeccompMode = "Disabled"
	// SeccompStrict allows four system calls.
	SeccompStrict SeccompMode = "Strict"
	// SeccompFilter is a filter, such as that of the profile RuntimeDefault.
	SeccompFilter SeccompMode = "Filter"
)

// HeldNetwork is what of the network a call's processes had.
// +kubebuilder:validation:Enum=None;Held;Pod
type HeldNetwork string

// What of the network there was.
const (
	// HeldNetworkNone is no network: a filter refused all sockets but Unix sockets.
	HeldNetworkNone HeldNetwork = "None"
	// HeldNetworkHeld is what the policy's network allows: the runner decided about each connection.
	HeldNetworkHeld HeldNetwork = "Held"
	// HeldNetworkPod is the network that the pod has.
	HeldNetworkPod HeldNetwork = "Pod"
)

// IsolationWay is how a node holds the processes of a call.
// +kubebuilder:validation:Enum=Landlock;Gate;Trace
type IsolationWay string

// Ways, from the strongest.
const (
	// IsolationLandlock is a Landlock domain. Where programs or connections are held, the runner also looks at each execve and
	// connect, and at what runs before the first instruction of it.
	IsolationLandlock IsolationWay = "Landlock"
	// IsolationGate is these looks without a Landlock domain: paths aren't held.
	IsolationGate IsolationWay = "Gate"
	// IsolationTrace is the last of these looks: each process of the call is traced, and a program that may not run is killed
	// before its first instruction. Connections aren't held.
	IsolationTrace IsolationWay = "Trace"
)

// Isolation is which walls held a call's processes. A field is absent where the runner didn't look, or couldn't tell.
type Isolation struct {
	// user is the UID that commands ran as, as the pod counts UIDs: in a user namespace, the node knows it as another one.
	// +optional
	User *int64 `json:"user,omitempty"`

	// seccomp is the mode of the filter that the container's runtime set, as the kernel says: Disabled, Strict or Filter.
	// What a filter lets through, nobody can see from inside. The runner's own filters come on top and don't count.
	// +optional
	Seccomp SeccompMode `json:"seccomp,omitempty"`

	// userNamespace says that the kernel maps the pod's UIDs to others: it has a user namespace of its own. False says that
	// every UID is mapped to itself, as in the node's initial user namespace; a user namespace that does the same looks no
	// different from inside. A sandbox with a kernel of its own, such as gVisor, speaks for that kernel only.
	// +optional
	UserNamespace *bool `json:"userNamespace,omitempty"`

	// runtimeClass is the runtimeClassName that the operator gave the pod; absent for the cluster's default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClass string `json:"runtimeClass,omitempty"`

	// network is None (the runner's filter refused all sockets but Unix sockets), Held (the runner decided about each
	// connection) or Pod (the runner held nothing: the processes had the pod's network, and NetworkPolicies may have held more,
	// which nobody inside can see).
	// +optional
	Network HeldNetwork `json:"network,omitempty"`

	// openUDP says that the network was held and UDP was not (network.udp of the policy).
	// +optional
	OpenUDP bool `json:"openUDP,omitempty"`

	// noNetwork is what the node lacks to hold connections, where that is why the call had no network: neither its policy nor
	// the call itself said anything of one.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	NoNetwork string `json:"noNetwork,omitempty"`

	// way is how the call was held, the strongest way that its node gives: Landlock, Gate (the runner looks at each execve and
	// connect, without Landlock) or Trace (each process is traced; the kernel can't ask the runner). Absent where nothing held it.
	// +optional
	Way IsolationWay `json:"way,omitempty"`

	// landlockABI is the version of Landlock whose domain held the call's processes. 0 says that none did: the kernel has
	// no Landlock, or nothing asked for it. Then reads, writes and signals aren't held.
	// +required
	LandlockABI int32 `json:"landlockABI"`

	// programs says that only listed programs could be executed.
	// +optional
	Programs bool `json:"programs,omitempty"`

	// weakPrograms says that the policy lists programs and that only names which the call had written out were compared with
	// the list (binaries.enforcement Name): it is weak, since nothing held what a listed program started.
	// +optional
	WeakPrograms bool `json:"weakPrograms,omitempty"`

	// reads says that files could be read below the policy's files.readPaths only.
	// +optional
	Reads bool `json:"reads,omitempty"`

	// writes says that files could be written below the policy's files.writePaths only. Where the policy sets none, a
	// call of a session could write below /workspace, /tmp, the home directory, and its working directory if that lies
	// in the environment's allowedPaths.
	// +optional
	Writes bool `json:"writes,omitempty"`

	// signals says that processes outside the call couldn't be signalled, nor their abstract sockets reached: Linux 6.12
	// and later.
	// +optional
	Signals bool `json:"signals,omitempty"`

	// namesOnly are multi-call programs that are listed: the kernel holds their file, and their names are only looked at.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	NamesOnly []string `json:"namesOnly,omitempty"`

	// unheldApplets are multi-call programs that are listed and run their other programs, the applets, without executing
	// them, or didn't show that they don't: to list one of their names is to list them all. Under binaries.multiCall Deny
	// of the policy they are why nothing was started.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	UnheldApplets []string `json:"unheldApplets,omitempty"`

	// writable are listed programs and directories that the call could write to: what it put there could run
	// (binaries.allowWritable of the policy).
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Writable []string `json:"writable,omitempty"`

	// notFound are entries of binaries.allowed that led to no program in the pod, outside what the call can write to.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	NotFound []string `json:"notFound,omitempty"`
}
