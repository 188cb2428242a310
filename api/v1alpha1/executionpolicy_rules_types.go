package v1alpha1

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
	// where it is true. An expression that fails, or costs too much, denies the call.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression"`

	// effect is Deny or RequireApproval.
	// +required
	Effect RuleEffect `json:"effect"`

	// message says to the caller, or to the person who decides, why the rule is there.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}

// ApprovalRequirement says which calls a person has to approve before they start, and how.
type ApprovalRequirement struct {
	// name tells the requirement from the others of the policy. A call that waits for it names it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// match says which calls it is for. An empty match is for all calls.
	// +required
	Match ApprovalMatch `json:"match,omitzero"`

	// approvers says whom to ask, for the people who read it. Who may approve is decided by the verb "approve" on the call.
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
	// actions are types of actions.
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Structured;Shell;Code;File
	// +listType=set
	// +optional
	Actions []ActionType `json:"actions,omitempty"`

	// tools are the names of tools, as access reviews have them: the program of a structured call, "shell", a code call's language,
	// or a file action's operation.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=set
	// +optional
	Tools []string `json:"tools,omitempty"`

	// rules are names of rules of the same policy with the effect RequireApproval: the requirement is for the calls that one of
	// them is true for. A rule that no requirement names needs one approval within 900 seconds.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Rules []string `json:"rules,omitempty"`
}

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
