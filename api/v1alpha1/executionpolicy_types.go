package v1alpha1

// ExecutionPolicySpec says what calls may do. Every field has a default that holds when it is unset; an empty list is
// not an unset one. The API server writes the defaults that decide about a call into the object. What a later version adds to a
// list doesn't change the policies that are there.
type ExecutionPolicySpec struct {
	// access is RBAC (the default: the call's creator needs "use" on tools with the tool's name, asked by
	// a SubjectAccessReview) or Open (anyone who may create a call).
	// +kubebuilder:default=RBAC
	// +optional
	Access AccessMode `json:"access,omitempty"`

	// shell holds the rules for shell calls.
	// +kubebuilder:default={}
	// +optional
	Shell *ShellPolicy `json:"shell,omitempty"`

	// binaries says which programs structured calls, and allowlisted shell calls, may run.
	// +kubebuilder:default={}
	// +optional
	Binaries *BinariesPolicy `json:"binaries,omitempty"`

	// files says which files commands may read and write. It is held by the kernel of the node.
	// +optional
	Files *FilesPolicy `json:"files,omitempty"`

	// arguments holds the rules for the arguments of structured calls.
	// +kubebuilder:default={}
	// +optional
	Arguments *ArgumentsPolicy `json:"arguments,omitempty"`

	// envBlocklist are prefixes, case-sensitive: a variable whose name starts with one is removed from a
	// call whose context isn't trusted, whoever set it. Default: TOOLCALL_, KUBERNETES_, AWS_, AZURE_, GCP_,
	// GOOGLE_, OPENAI_, ANTHROPIC_, HF_, HUGGING. An empty list blocks nothing.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +kubebuilder:default={"TOOLCALL_","KUBERNETES_","AWS_","AZURE_","GCP_","GOOGLE_","OPENAI_","ANTHROPIC_","HF_","HUGGING"}
	// +optional
	EnvBlocklist []string `json:"envBlocklist,omitzero"`

	// protectedEnv are the variables that a call's own env may not set, because they make another program
	// run than the one that was checked; a name, or a prefix that ends in "*". With shell.commands Allowlisted and
	// binaries.enforcement Name, a script may not set them either where the assignment is written out. Default: PATH,
	// IFS, LD_*, BASH_ENV, PYTHONPATH and more, as the object shows. An empty list protects nothing.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z_][A-Za-z0-9_]*\*?$`
	// +listType=atomic
	// +kubebuilder:default={"PATH","IFS","ENV","BASH_ENV","SHELLOPTS","BASHOPTS","PS4","PROMPT_COMMAND","LD_*","GLIBC_TUNABLES","PYTHONBREAKPOINT","PYTHONPATH","PYTHONHOME","PYTHONSTARTUP","PYTHONUSERBASE","NODE_OPTIONS","NODE_PATH","PERLLIB","PERL5DB","PERL5LIB","PERL5OPT","RUBYLIB","RUBYOPT","JAVA_TOOL_OPTIONS","_JAVA_OPTIONS","JDK_JAVA_OPTIONS","GIT_SSH*","GIT_EXEC_PATH","GIT_EXTERNAL_DIFF","GIT_PROXY_COMMAND","GIT_CONFIG*","GIT_PAGER","PAGER","MANPAGER","EDITOR","VISUAL","BROWSER","LESSOPEN","LESSCLOSE"}
	// +optional
	ProtectedEnv []string `json:"protectedEnv,omitzero"`

	// timeouts bounds how long a process may run.
	// +kubebuilder:default={}
	// +optional
	Timeouts *TimeoutsPolicy `json:"timeouts,omitempty"`

	// code holds the rules for code calls.
	// +kubebuilder:default={}
	// +optional
	Code *CodePolicy `json:"code,omitempty"`

	// network says what calls may connect to and look up. The runner decides about each connection; a node that can't hold
	// calls to that ends them with IsolationUnavailable. Unset: mode Open, and for code calls None.
	// +optional
	Network *NetworkRules `json:"network,omitempty"`

	// output bounds what is kept of a process's output.
	// +kubebuilder:default={}
	// +optional
	Output *OutputPolicy `json:"output,omitempty"`

	// audit says what the operator's audit log, where there is one, says of calls.
	// +optional
	Audit *AuditPolicy `json:"audit,omitempty"`

	// rules are rules about calls in CEL, which are checked after everything else: they refuse more, and allow nothing that is
	// refused without them. At most 64.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Rules []PolicyRule `json:"rules,omitempty"`

	// approvals say which calls a person has to approve before they start. At most 16.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",message="two requirements have the same name"
	// +listType=atomic
	// +optional
	Approvals []ApprovalRequirement `json:"approvals,omitempty"`

	// examples are calls with what the policy has to say about them, judged when the policy changes. While one comes out otherwise,
	// the policy isn't ready (ExampleFailed) and nothing runs under it. At most 64.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Examples []PolicyExample `json:"examples,omitempty"`
}

// AccessMode is how the right to use a tool is decided.
// +kubebuilder:validation:Enum=RBAC;Open
type AccessMode string

// Access modes.
const (
	// AccessRBAC lets those use a tool who have the right to.
	AccessRBAC AccessMode = "RBAC"
	// AccessOpen lets everybody who may create a call use every tool.
	AccessOpen AccessMode = "Open"
)

// ShellCommandsMode says whether the commands of a script are held to the list of binaries.
// +kubebuilder:validation:Enum=Unrestricted;Allowlisted
type ShellCommandsMode string

// Modes of ShellPolicy.commands.
const (
	// ShellUnrestricted does not look at the script.
	ShellUnrestricted ShellCommandsMode = "Unrestricted"
	// ShellAllowlisted refuses a script that could run a program which is not listed.
	ShellAllowlisted ShellCommandsMode = "Allowlisted"
)

// ShellPolicy holds the rules for shell calls.
type ShellPolicy struct {
	// enabled lets shell calls run at all. Default false.
	// +kubebuilder:default=false
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// commands is Unrestricted (the default) or Allowlisted: the script runs programs in binaries.allowed only.
	// binaries.enforcement says what holds it.
	// +kubebuilder:default=Unrestricted
	// +optional
	Commands ShellCommandsMode `json:"commands,omitempty"`
}

// BinariesMode says what an empty list of binaries means.
// +kubebuilder:validation:Enum=Permissive;Enforced
type BinariesMode string

// Modes of BinariesPolicy.
const (
	// BinariesPermissive takes an empty list for any program.
	BinariesPermissive BinariesMode = "Permissive"
	// BinariesEnforced takes an empty list for none. BinariesPolicy.enforcement says what holds it.
	BinariesEnforced BinariesMode = "Enforced"
)

// BinariesPolicy says which programs may run.
type BinariesPolicy struct {
	// mode is Permissive (the default: an empty list allows any binary) or Enforced (an empty list allows
	// none). enforcement says whether the list also holds what a listed program starts.
	// +kubebuilder:default=Permissive
	// +optional
	Mode BinariesMode `json:"mode,omitempty"`

	// allowed are the programs, case-sensitive: a bare name, which is looked up in the call's PATH inside the pod; an
	// absolute path, which is that file; or an absolute path that ends in "/", which is every program below that
	// directory, and where the links in it lead. Links are followed. At most 1024 entries of at most 256 characters. Default: none.
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Allowed []string `json:"allowed,omitzero"`

	// enforcement is Kernel (the default: the kernel of the node refuses to execute a program that isn't listed,
	// whatever a script or an interpreter tries; a node that can't ends the call with IsolationUnavailable) or Name (the
	// names of commands that are written out are compared with the list before anything runs, and a script in which one
	// isn't written out is refused. It is weak: nothing holds what a listed program starts).
	// +kubebuilder:default=Kernel
	// +optional
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// helpers are the programs that listed programs need, by the name or path of the listed program as it stands in
	// allowed, or by its path below a listed directory. They may be executed, but don't count as listed in a call. A built-in table knows the helpers of
	// common programs. Only with enforcement Kernel. At most 64 programs.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Helpers map[string]HelperList `json:"helpers,omitempty"`

	// allowWritable lets a listed directory, or a listed path, be one that the call can write to: what the call puts
	// there may then run. Without it such an entry allows nothing. Default false.
	// +kubebuilder:default=false
	// +optional
	AllowWritable *bool `json:"allowWritable,omitempty"`

	// multiCall is Deny (the default: a call doesn't start, and ends with IsolationUnavailable, if it may start a listed
	// multi-call program that runs its other programs without executing them, which nothing holds then; Debian's
	// busybox-static is such a one) or Allow (it starts: to list one of that program's names is to list them all). Only
	// with enforcement Kernel.
	// +kubebuilder:default=Deny
	// +optional
	MultiCall MultiCallMode `json:"multiCall,omitempty"`
}

// MultiCallMode says whether programs may be listed that run others without executing them.
// +kubebuilder:validation:Enum=Deny;Allow
type MultiCallMode string

// Modes of BinariesPolicy.multiCall.
const (
	// MultiCallDeny refuses calls that may start such a program.
	MultiCallDeny MultiCallMode = "Deny"
	// MultiCallAllow lets them start.
	MultiCallAllow MultiCallMode = "Allow"
)

// Enforcement is what holds the list of programs.
// +kubebuilder:validation:Enum=Kernel;Name
type Enforcement string

// Values of BinariesPolicy.enforcement.
const (
	// EnforcementKernel holds the list where programs are started.
	EnforcementKernel Enforcement = "Kernel"
	// EnforcementName compares names that are written out with the list, and nothing else: it is weak.
	EnforcementName Enforcement = "Name"
)

// HelperList are bare names, absolute paths, or absolute paths with the wildcards *, ? and [], looked up in the pod.
// +kubebuilder:validation:MaxItems=64
// +kubebuilder:validation:items:MinLength=1
// +kubebuilder:validation:items:MaxLength=256
// +listType=atomic
type HelperList []string

// MetacharacterMode says whether arguments may hold shell metacharacters.
// +kubebuilder:validation:Enum=Deny;Allow
type MetacharacterMode string

// Modes of ArgumentsPolicy.metacharacters.
const (
	// MetacharactersDeny refuses arguments with a shell metacharacter or "..".
	MetacharactersDeny MetacharacterMode = "Deny"
	// MetacharactersAllow takes any argument.
	MetacharactersAllow MetacharacterMode = "Allow"
)

// ArgumentsPolicy holds the rules for the arguments of structured calls.
type ArgumentsPolicy struct {
	// metacharacters is Deny (the default: an argument with a shell metacharacter or ".." is refused) or Allow.
	// +kubebuilder:default=Deny
	// +optional
	Metacharacters MetacharacterMode `json:"metacharacters,omitempty"`
}

// TimeoutsPolicy bounds how long a process may run.
type TimeoutsPolicy struct {
	// defaultSeconds is the limit of a call that names none, at most maxSeconds. Default 120.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=120
	// +optional
	DefaultSeconds *int32 `json:"defaultSeconds,omitempty"`

	// maxSeconds is the highest limit that a call gets, whatever it asks for. Default 600.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=600
	// +optional
	MaxSeconds *int32 `json:"maxSeconds,omitempty"`
}

// OversizedMode says what happens to a source that is longer than what is scanned.
// +kubebuilder:validation:Enum=Deny;ScanPrefix
type OversizedMode string

// Modes of CodePolicy.oversized.
const (
	// OversizedDeny refuses a longer source.
	OversizedDeny OversizedMode = "Deny"
	// OversizedScanPrefix runs a longer source, with its rest unscanned.
	OversizedScanPrefix OversizedMode = "ScanPrefix"
)

// CodePolicy holds the rules for code calls.
type CodePolicy struct {
	// enabled lets code calls run at all. Default true.
	// +kubebuilder:default=true
	// +optional
	Enabled *bool `json:"enabled,omitempty"`

	// languages that may be used, compared in lower case. Default python. An empty list allows any.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +listType=atomic
	// +kubebuilder:default={"python"}
	// +optional
	Languages []string `json:"languages,omitzero"`

	// deniedModules are modules that a source must not use. Default: os, subprocess, socket, sys, ctypes,
	// shutil, pickle, marshal, importlib. An empty list denies none.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +kubebuilder:default={"os","subprocess","socket","sys","ctypes","shutil","pickle","marshal","importlib"}
	// +optional
	DeniedModules []string `json:"deniedModules,omitzero"`

	// networkAccess lets code calls ask for network access where network.mode is unset. Default false. Deprecated: set
	// network.mode, which holds for code calls too.
	// +kubebuilder:default=false
	// +optional
	NetworkAccess *bool `json:"networkAccess,omitempty"`

	// maxExecutionMilliseconds is the longest time that a code call may ask for; more is refused. A code call that asks
	// for none gets at most this. No bound but timeouts.maxSeconds when unset.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxExecutionMilliseconds *int64 `json:"maxExecutionMilliseconds,omitempty"`

	// maxScanBytes is how much of a source is scanned. Default 65536.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=524288
	// +kubebuilder:default=65536
	// +optional
	MaxScanBytes *int32 `json:"maxScanBytes,omitempty"`

	// oversized is Deny (the default: a source longer than maxScanBytes is refused) or ScanPrefix (it runs
	// all the same, with the rest unscanned).
	// +kubebuilder:default=Deny
	// +optional
	Oversized OversizedMode `json:"oversized,omitempty"`
}

// OutputPolicy bounds what is kept of a process's output.
type OutputPolicy struct {
	// maxBytesPerStream is how much of each stream is kept, half from its start and half from its end, at most 262144
	// bytes. Default 65536.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=262144
	// +kubebuilder:default=65536
	// +optional
	MaxBytesPerStream *int32 `json:"maxBytesPerStream,omitempty"`

	// keepBytesPerStream is how much of each stream is kept in the pod while a call runs, and in a session after it, to be
	// read as toolcalls/log of the group subresources.toolcall.dev: half from its start and half from its end. What is kept
	// takes space below /tmp. Of a stream that the status shortens, the same is in the output store for as long as the call is
	// there, if the operator has one. 0 keeps no more than maxBytesPerStream. At most 1073741824; default 8388608.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1073741824
	// +kubebuilder:default=8388608
	// +optional
	KeepBytesPerStream *int64 `json:"keepBytesPerStream,omitempty"`

	// artifacts bounds the files that calls keep with spec.collect.
	// +kubebuilder:default={}
	// +optional
	Artifacts *ArtifactsPolicy `json:"artifacts,omitempty"`

	// redaction is KnownValues (the default: the values of Secrets that the call's pod has are replaced by
	// "[redacted: NAME]" wherever bytes leave the call, as they stand and in common encodings) or Off. Values shorter than
	// 8 bytes aren't replaced. What a call writes into files isn't changed.
	// +kubebuilder:default=KnownValues
	// +optional
	Redaction RedactionMode `json:"redaction,omitempty"`
}

// RedactionMode says what is replaced in output.
// +kubebuilder:validation:Enum=KnownValues;Off
type RedactionMode string

// Values of OutputPolicy.redaction.
const (
	// RedactKnownValues replaces the values of Secrets.
	RedactKnownValues RedactionMode = "KnownValues"
	// RedactOff replaces nothing.
	RedactOff RedactionMode = "Off"
)
