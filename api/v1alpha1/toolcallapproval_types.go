package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApprovalDecision is what a person decides about a call.
// +kubebuilder:validation:Enum=Approve;Deny
type ApprovalDecision string

// Decisions.
const (
	// DecisionApprove lets the call start.
	DecisionApprove ApprovalDecision = "Approve"
	// DecisionDeny ends the call.
	DecisionDeny ApprovalDecision = "Deny"
)

// ApprovalPhase is what became of a decision.
// +kubebuilder:validation:Enum=Pending;Accepted;Rejected
type ApprovalPhase string

// Phases of a ToolCallApproval.
const (
	// ApprovalPending was not judged yet.
	ApprovalPending ApprovalPhase = "Pending"
	// ApprovalAccepted counts for its call.
	ApprovalAccepted ApprovalPhase = "Accepted"
	// ApprovalRejected doesn't count; the reason says why.
	ApprovalRejected ApprovalPhase = "Rejected"
)

// ApprovalStatus is what people decide about before a call starts, and what they decided.
type ApprovalStatus struct {
	// digest is "sha256:" and the SHA-256 of summary, in lower-case hexadecimal. A ToolCallApproval has to name it.
	// +kubebuilder:validation:MaxLength=71
	// +required
	Digest string `json:"digest"`

	// summary is what will happen, as canonical JSON (RFC 8785), at most 8192 bytes as JSON: the action as it will run and as it was
	// asked for, caller, environment, session, directory, variables, network, limits, policy, and when it was asked. The values
	// of variables and the standard input stand as their SHA-256, and so do long texts and large parts. The content of files that
	// the action reads or runs isn't part of it, and notBound says so.
	// +kubebuilder:validation:MaxLength=8192
	// +required
	Summary string `json:"summary"`

	// needed is how many different people have to approve.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	// +required
	Needed int32 `json:"needed"`

	// requestedAt is since when the call waits for the decision.
	// +required
	RequestedAt metav1.MicroTime `json:"requestedAt"`

	// expiresAt is until when it waits. Then it ends as Denied with the reason ApprovalExpired.
	// +required
	ExpiresAt metav1.MicroTime `json:"expiresAt"`

	// causes are the names of the policy's requirements and rules that ask for the decision, the first 8.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=atomic
	// +optional
	Causes []string `json:"causes,omitempty"`

	// messages are what the policy's rules say to those who decide, the first 8, each up to 128 bytes.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=atomic
	// +optional
	Messages []string `json:"messages,omitempty"`

	// approvers says whom to ask, the first 8. Who may decide is said by the verb "approve" on the call.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=atomic
	// +optional
	Approvers []string `json:"approvers,omitempty"`

	// approvedBy are the approvals that count.
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	// +optional
	ApprovedBy []CountedApproval `json:"approvedBy,omitempty"`

	// deniedBy is the denial that ended the call.
	// +optional
	DeniedBy *CountedApproval `json:"deniedBy,omitempty"`
}

// CountedApproval is a ToolCallApproval that was counted for a call.
type CountedApproval struct {
	// name of the ToolCallApproval.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// uid of the ToolCallApproval.
	// +kubebuilder:validation:MaxLength=128
	// +required
	UID string `json:"uid"`

	// username of who decided, up to 256 bytes.
	// +kubebuilder:validation:MaxLength=256
	// +required
	Username string `json:"username"`
}

// CallReference names one ToolCall in the same namespace.
type CallReference struct {
	// name of the ToolCall.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// uid of the ToolCall: the decision counts for no other call of the name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +required
	UID string `json:"uid"`
}

// ToolCallApprovalSpec is a decision. It never changes, and deleting it doesn't take it back.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable: create another ToolCallApproval"
type ToolCallApprovalSpec struct {
	// callRef is the call that the decision is about.
	// +required
	CallRef CallReference `json:"callRef"`

	// digest is the status.approval.digest of that call: the decision is about exactly what its summary says.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	// +required
	Digest string `json:"digest"`

	// decision is Approve or Deny. The first Deny ends the call.
	// +required
	Decision ApprovalDecision `json:"decision"`

	// note is for the caller: the message of a denied call has it.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Note string `json:"note,omitempty"`

	// approver is who decided. Admission sets it from the request itself, whatever the client wrote. Before Kubernetes 1.36,
	// clients set it, and admission refuses what isn't the user of the request.
	// +optional
	Approver *Requester `json:"approver,omitempty"`
}

// ToolCallApprovalStatus is what the operator made of a decision.
type ToolCallApprovalStatus struct {
	// phase is Pending, then Accepted or Rejected. Empty stands for Pending.
	// +optional
	Phase ApprovalPhase `json:"phase,omitempty"`

	// conditions has Accepted: True when the decision counts for its call, False with the reason why not.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ToolCallApproval is a person's decision about one call that waits for it. It serves one start of that call.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tca,categories=toolcall-dev
// +kubebuilder:selectablefield:JSONPath=`.spec.callRef.name`
// +kubebuilder:selectablefield:JSONPath=`.spec.approver.username`
// +kubebuilder:printcolumn:name="Call",type=string,JSONPath=`.spec.callRef.name`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.spec.decision`
// +kubebuilder:printcolumn:name="Approver",type=string,JSONPath=`.spec.approver.username`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ToolCallApproval struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision.
	// +required
	Spec ToolCallApprovalSpec `json:"spec"`

	// status is what became of it. The operator alone writes it.
	// +optional
	Status ToolCallApprovalStatus `json:"status,omitempty"`
}

// ApproverName is who decided, as far as it says; empty when it doesn't.
func (a *ToolCallApproval) ApproverName() string {
	if a.Spec.Approver == nil {
		return ""
	}
	return a.Spec.Approver.Username
}

// ToolCallApprovalList is a list of ToolCallApproval.
//
// +kubebuilder:object:root=true
type ToolCallApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolCallApproval `json:"items"`
}
