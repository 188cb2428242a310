package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// ToolCallReview asks whether a call would run. To create one is to ask; the answer is its status. Nothing is stored or run.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type ToolCallReview struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is that of the request. Only its namespace counts.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the question.
	// +required
	Spec ToolCallReviewSpec `json:"spec"`

	// status is the operator's answer.
	// +optional
	Status ToolCallReviewStatus `json:"status,omitzero"`
}

// ToolCallReviewSpec is a call that nobody creates, and for whom and under which policy it is judged.
type ToolCallReviewSpec struct {
	// call is the spec of the call. Its requestedBy is ignored: it is the reviewed user. Its schema and the rules about its size are
	// checked when a call is created; a dry run of that shows whether it would be taken.
	// +required
	Call v1alpha1.ToolCallSpec `json:"call"`

	// user is for whom the call is judged: the user of the request when unset. Another one needs the right to impersonate the user, and
	// each of the groups, the uid and the extra values. As with impersonation, a user gets the group system:authenticated, and a service
	// account without groups those of service accounts. At most 128 groups and extra values.
	// +optional
	User *v1alpha1.Requester `json:"user,omitempty"`

	// policyName names an ExecutionPolicy that is applied in place of the one that the environment names. It needs the verb "use" or
	// "get" on that policy.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PolicyName string `json:"policyName,omitempty"`

	// policy is applied in place of the one that the environment names. It needs the right to create executionpolicies, and excludes
	// policyName.
	// +optional
	Policy *v1alpha1.ExecutionPolicySpec `json:"policy,omitempty"`
}

// ToolCallReviewStatus is what would become of the call. It says what holds for this call, as the call's status and a denial do, and
// nothing else of the policy. Values of variables aren't in it.
type ToolCallReviewStatus struct {
	// allowed says that the call would run; where approval is set, once it has been approved.
	// +optional
	Allowed bool `json:"allowed"`

	// denial says why the call would not run. Unset for a call that is allowed, or undecided.
	// +optional
	Denial *ReviewDenial `json:"denial,omitempty"`

	// undecided says why there is no verdict now, such as an authorizer that doesn't answer. A call would wait.
	// +kubebuilder:validation:MaxLength=32768
	// +optional
	Undecided string `json:"undecided,omitempty"`

	// requester is the name of the reviewed user. Empty where no admission policy vouches for who creates calls.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Requester string `json:"requester,omitempty"`

	// tool is the one that the requester has to be allowed to use.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Tool string `json:"tool,omitempty"`

	// mayUse says whether the requester may use the tool. Unset where that wasn't asked, as under a policy with the access Open.
	// +optional
	MayUse *bool `json:"mayUse,omitempty"`

	// environment is the name of the ExecutionEnvironment in effect.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Environment string `json:"environment,omitempty"`

	// policy is the name of the ExecutionPolicy in effect. Empty for the built-in defaults, and for an inline one.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Policy string `json:"policy,omitempty"`

	// warnings say what would hold the call less than the policy looks like.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	Warnings []string `json:"warnings,omitempty"`

	// inEffect is what would hold for the call. Set for a call that is allowed.
	// +optional
	InEffect *ReviewInEffect `json:"inEffect,omitempty"`

	// approval is what people have to decide before the call starts. Unset for a call that needs no approval.
	// +optional
	Approval *ReviewApproval `json:"approval,omitempty"`
}

// ReviewDenial says why a call would not run.
type ReviewDenial struct {
	// phase is the one that the call would end in: Denied by a guard, or Failed before it starts.
	// +required
	Phase v1alpha1.Phase `json:"phase"`

	// reason is the one that the call's status would have.
	// +kubebuilder:validation:MaxLength=128
	// +required
	Reason string `json:"reason"`

	// message says what was refused, by which rule, where in the call, and what would pass.
	// +kubebuilder:validation:MaxLength=32768
	// +required
	Message string `json:"message"`

	// rule names what refused the call: a field of the policy, or another rule.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Rule string `json:"rule,omitempty"`

	// requesterCan says what the requester can do about it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	RequesterCan string `json:"requesterCan,omitempty"`

	// ownerCan says what the owner of the policy can do about it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	OwnerCan string `json:"ownerCan,omitempty"`

	// alternatives are the policy's programs or languages that would pass in place of the call's, as far as the policy goes.
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	Alternatives []string `json:"alternatives,omitempty"`

	// position is where in the script something was refused. Unset where there is no such place.
	// +optional
	Position *ReviewPosition `json:"position,omitempty"`
}

// ReviewPosition is a place in a script.
type ReviewPosition struct {
	// line is the number of the line, from 1.
	// +required
	Line int32 `json:"line"`

	// column is the number of the byte in the line, from 1.
	// +required
	Column int32 `json:"column"`
}

// ReviewInEffect is what would hold for a call.
type ReviewInEffect struct {
	// argvPrefix is the shell or the interpreter that the environment gives the call.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	ArgvPrefix []string `json:"argvPrefix,omitempty"`

	// workingDir is the directory that the process starts in. Empty for the image's.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	WorkingDir string `json:"workingDir,omitempty"`

	// allowedPaths are where that directory may be. Empty for the defaults.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	AllowedPaths []string `json:"allowedPaths,omitempty"`

	// timeoutMilliseconds is the limit of the process's wall-clock time. Unset for a background call without one.
	// +optional
	TimeoutMilliseconds *int64 `json:"timeoutMilliseconds,omitempty"`

	// maxBytesPerStream is how many bytes of each output stream the status would keep.
	// +required
	MaxBytesPerStream int64 `json:"maxBytesPerStream"`

	// network is what the call could connect to.
	// +required
	Network ReviewNetwork `json:"network"`

	// programs say what holds the programs that the call starts.
	// +required
	Programs ReviewPrograms `json:"programs"`

	// readPaths are the directories that the kernel lets the call's processes read, besides what programs need, or that the runner lets a
	// file action read. Unset where the policy lists none, empty for no directory.
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	ReadPaths []string `json:"readPaths,omitzero"`

	// writePaths are the directories that the kernel lets the call's processes write to, or the runner a file action. Unset where the policy
	// lists none, empty for no directory.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	WritePaths []string `json:"writePaths,omitzero"`

	// variables are those that are known outside of the pod, by name, with the layer that each comes from.
	// +kubebuilder:validation:MaxItems=4096
	// +listType=map
	// +listMapKey=name
	// +optional
	Variables []ReviewVariable `json:"variables,omitempty"`

	// strippedEnv are names of variables that would be removed.
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	StrippedEnv []string `json:"strippedEnv,omitempty"`

	// runnerEnv are names of variables that the runner sets where no layer and the image don't.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	RunnerEnv []string `json:"runnerEnv,omitempty"`

	// inheritMinimal says that of the image's variables the call gets HOME, USER, LOGNAME and PATH alone.
	// +optional
	InheritMinimal bool `json:"inheritMinimal,omitempty"`

	// trusted says that blocked variables are kept where a layer sets them.
	// +optional
	Trusted bool `json:"trusted,omitempty"`
}

// ReviewVariable is a variable without its value.
type ReviewVariable struct {
	// name of the variable.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Name string `json:"name"`

	// source is the layer that it comes from.
	// +required
	Source v1alpha1.EnvSource `json:"source"`
}

// ReviewNetwork is what a call could connect to.
type ReviewNetwork struct {
	// held is what of the network the call's processes have.
	// +required
	Held v1alpha1.HeldNetwork `json:"held"`

	// hosts are those that can be reached. With none, every host can be that isn't denied if isOpen is set, and none otherwise.
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Hosts []string `json:"hosts,omitempty"`

	// isOpen says that every host outside of the cluster can be reached that isn't denied.
	// +optional
	IsOpen bool `json:"isOpen,omitempty"`

	// inCluster says that the cluster's addresses can be reached like others.
	// +optional
	InCluster bool `json:"inCluster,omitempty"`
}

// ProgramsHeld says what holds the programs that a call starts.
// +kubebuilder:validation:Enum=Kernel;Name;CallOnly;None
type ProgramsHeld string

// What holds programs.
const (
	// ProgramsHeldKernel has the kernel start listed programs only.
	ProgramsHeldKernel ProgramsHeld = "Kernel"
	// ProgramsHeldName compares the names that the call has written out with the list. Nothing holds what a listed program starts.
	ProgramsHeldName ProgramsHeld = "Name"
	// ProgramsHeldCallOnly compares the call's own program with the list.
	ProgramsHeldCallOnly ProgramsHeld = "CallOnly"
	// ProgramsHeldNone lets any program start.
	ProgramsHeldNone ProgramsHeld = "None"
)

// ReviewPrograms says what holds the programs that a call starts.
type ReviewPrograms struct {
	// held says what holds them.
	// +required
	Held ProgramsHeld `json:"held"`

	// allowed are the listed programs, and directories of programs.
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	// +optional
	Allowed []string `json:"allowed,omitempty"`

	// own is the program that the environment gives the call. It runs though it may not be listed.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Own string `json:"own,omitempty"`

	// multiCall says that a multi-call program which runs its applets without executing them may run all of them.
	// +optional
	MultiCall bool `json:"multiCall,omitempty"`

	// writable says that what the call writes to a listed path may start too.
	// +optional
	Writable bool `json:"writable,omitempty"`
}

// ReviewApproval is what people would have to decide.
type ReviewApproval struct {
	// causes name the policy's requirements and rules that ask for it.
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=atomic
	// +required
	Causes []string `json:"causes"`

	// messages are what the rules among the causes say to those who decide.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=atomic
	// +optional
	Messages []string `json:"messages,omitempty"`

	// approvers says whom to ask.
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Approvers []string `json:"approvers,omitempty"`

	// minimum is how many different people have to approve.
	// +required
	Minimum int32 `json:"minimum"`

	// expiresSeconds is how long the call would wait for the decision, in seconds.
	// +required
	ExpiresSeconds int32 `json:"expiresSeconds"`
}
