package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// RuleEffect is what a rule of a policy does with the calls that its expression is true for.
// +kubebuilder:validation:Enum=Deny;RequireApproval
type RuleEffect string

// Effects of PolicyRule.
const (
	// RuleDeny denies the call.
	RuleDeny RuleEffect = "Deny"
	// RuleRequireApproval has a person decide about the call before it starts.
	RuleRequireApproval RuleEffect = "RequireApproval"
)

// PolicyRule is a rule about calls in CEL.
type PolicyRule struct {
	// name tells the rule from the others of the policy. Denials and approvals name it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// expression is CEL that returns a boolean, over the variables call, action, caller, environment and session. The rule applies
	// where it is true. An expression that fails, or costs too much, denies the call. At most 4096 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`

	// effect is Deny or RequireApproval.
	// +required
	Effect RuleEffect `json:"effect"`

	// message says to the caller, or to the person who decides, why the rule is there. Empty when unset. At most 1024 characters.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// ApprovalRequirement says which calls a person has to approve before they start, and how.
type ApprovalRequirement struct {
	// name tells the requirement from the others of the policy. A call that waits for it names it. "approvals[0]" for the first, and so
	// on, when unset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Name string `json:"name,omitempty"`

	// match says which calls it is for. An empty match is for all calls.
	// +required
	Match ApprovalMatch `json:"match"`

	// approvers says whom to ask, for the people who read it. Who may approve is decided by the verb "approve" on the call. At most
	// 16. Empty when unset.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	Approvers []string `json:"approvers,omitempty"`

	// minimum is how many different people have to approve. Default 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	// +kubebuilder:default=1
	// +optional
	Minimum *int32 `json:"minimum,omitempty"`

	// expiresSeconds is how long the call waits for the decision, in seconds, from when it began to wait. Default 900.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	// +kubebuilder:default=900
	// +optional
	ExpiresSeconds *int32 `json:"expiresSeconds,omitempty"`
}

// ApprovalMatch says which calls need approval. Of the fields that are set, all have to match.
type ApprovalMatch struct {
	// actions are types of actions. Any type when unset.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Structured;Shell;Code;File
	// +listType=set
	// +optional
	Actions []ActionType `json:"actions,omitempty"`

	// tools are the names of tools, as access reviews have them: the program of a structured call, "bash" for a shell call, a code
	// call's language in lower case, "file.read" or "file.write". Any tool when unset.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	// +optional
	Tools []string `json:"tools,omitempty"`

	// rules are names of rules of the same policy with the effect RequireApproval: the requirement is for the calls that one of
	// them is true for. A rule that is true and that no matching requirement names needs one approval within 900 seconds.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Rules []string `json:"rules,omitempty"`
}

// Bounds of what a policy says about calls.
const (
	// MaxPolicyRules is how many rules a policy has.
	MaxPolicyRules = 64
	// MaxApprovalRequirements is how many requirements of approval a policy has.
	MaxApprovalRequirements = 16
	// MaxPolicyExamples is how many examples a policy has.
	MaxPolicyExamples = 64
	// MaxExampleBytes is how large the call of an example is, in bytes of JSON.
	MaxExampleBytes = 16384
	// DefaultApprovalSeconds is how long a call waits for a decision where nothing says otherwise.
	DefaultApprovalSeconds = 900
)

// ExpectedVerdict is what an example of a policy has to come out as.
// +kubebuilder:validation:Enum=Allow;Deny;RequireApproval
type ExpectedVerdict string

// Verdicts that an example expects.
const (
	// ExpectAllow expects that the call may run at once.
	ExpectAllow ExpectedVerdict = "Allow"
	// ExpectDeny expects that the call is denied.
	ExpectDeny ExpectedVerdict = "Deny"
	// ExpectApproval expects that the call may run once a person has approved it.
	ExpectApproval ExpectedVerdict = "RequireApproval"
)

// PolicyExample is a call and what the policy has to say about it. It is judged like a call in an environment of its own, without
// variables.
//
// +kubebuilder:validation:XValidation:rule="!has(self.reason) || self.expect == 'Deny'",message="reason goes with expect: Deny only"
type PolicyExample struct {
	// name tells the example from the others of the policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// call is the spec of a ToolCall, at most 16384 bytes of JSON. It can't set environmentRef, sessionRef, skillRef and requestedBy.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Call runtime.RawExtension `json:"call"`

	// caller is who creates the call. Under access RBAC the caller is taken to have the right to use the tool.
	// +optional
	Caller *ExampleCaller `json:"caller,omitempty"`

	// expect is what has to come out: Allow, Deny or RequireApproval. Another outcome makes the policy not ready, and nothing runs
	// under it.
	// +required
	Expect ExpectedVerdict `json:"expect"`

	// reason is the reason of the denial that is expected. Any when unset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Reason string `json:"reason,omitempty"`
}

// ExampleCaller is who creates the call of an example.
type ExampleCaller struct {
	// username of the caller. "example" when unset.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default=example
	// +optional
	Username string `json:"username,omitempty"`

	// groups of the caller. None when unset. At most 64.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	// +optional
	Groups []string `json:"groups,omitempty"`
}
