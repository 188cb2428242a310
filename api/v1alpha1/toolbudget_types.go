package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ToolBudgetSpec says how much the calls and sessions of some requesters may use together, in the budget's namespace.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxConcurrentCalls) || has(self.maxSessions) || has(self.cpuSecondsPerHour) || has(self.maxPendingBytes)",message="set at least one of maxConcurrentCalls, maxSessions, cpuSecondsPerHour and maxPendingBytes"
type ToolBudgetSpec struct {
	// subjects are the requesters who share the budget. Without any, everybody shares it who makes calls or sessions in the namespace.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Subjects []BudgetSubject `json:"subjects,omitempty"`

	// maxConcurrentCalls is how many of their calls may run at the same time, in sessions and without. A call counts from when its
	// budgets let it in until it ends, also while it waits for a place in its environment or for its pod. With 0, none may run. Default:
	// any number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxConcurrentCalls *int32 `json:"maxConcurrentCalls,omitempty"`

	// maxSessions is how many of their sessions may have a pod at the same time. With 0, none may. Default: any number.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxSessions *int32 `json:"maxSessions,omitempty"`

	// cpuSecondsPerHour is how much CPU time their calls may use in an hour, in seconds. A call counts once it has ended: when that much
	// was used in the last hour, no other call starts. With 0, none ever does. Default: any amount.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000
	// +optional
	CPUSecondsPerHour *int64 `json:"cpuSecondsPerHour,omitempty"`

	// maxPendingBytes is how much input their calls that have not started may have together, in bytes: scripts, sources, arguments,
	// variables, standard input, content of files. A call over it waits until others have started; one that is larger by itself is
	// denied. Default: any amount.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000000000000
	// +optional
	MaxPendingBytes *int64 `json:"maxPendingBytes,omitempty"`
}

// BudgetSubjectKind is what a subject of a budget is.
// +kubebuilder:validation:Enum=User;Group;ServiceAccount
type BudgetSubjectKind string

// Kinds of BudgetSubject.
const (
	// BudgetUser is the user of that name.
	BudgetUser BudgetSubjectKind = "User"
	// BudgetGroup is everybody in the group of that name.
	BudgetGroup BudgetSubjectKind = "Group"
	// BudgetServiceAccount is a service account.
	BudgetServiceAccount BudgetSubjectKind = "ServiceAccount"
)

// BudgetSubject is a user, a group, or a service account.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == has(self.namespace)",message="set namespace for a ServiceAccount, and for nothing else"
type BudgetSubject struct {
	// kind is User, Group or ServiceAccount.
	// +required
	Kind BudgetSubjectKind `json:"kind"`

	// name of the user, the group or the service account.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`

	// namespace of the service account.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// ToolBudgetStatus says how much of a budget is in use.
type ToolBudgetStatus struct {
	// observedGeneration is the generation that the operator goes by.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// used is what was in use when the operator looked last. It looks every 15 seconds.
	// +optional
	Used *BudgetUse `json:"used,omitempty"`

	// conditions holds Ready: True while the operator holds calls and sessions to the budget.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BudgetUse is what is in use of a budget.
type BudgetUse struct {
	// concurrentCalls is how many calls count towards maxConcurrentCalls.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ConcurrentCalls int32 `json:"concurrentCalls"`

	// sessions is how many sessions have a pod.
	// +kubebuilder:validation:Minimum=0
	// +optional
	Sessions int32 `json:"sessions"`

	// cpuSeconds is the CPU time of the calls that ended in the last hour, in whole seconds.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CPUSeconds int64 `json:"cpuSeconds"`

	// pendingBytes is the input of the calls that have not started, in bytes.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PendingBytes int64 `json:"pendingBytes"`
}

// ToolBudget bounds what some requesters, or all, use together in its namespace. What is over it waits.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=toolcall-dev
// +kubebuilder:printcolumn:name="Calls",type=integer,JSONPath=`.status.used.concurrentCalls`
// +kubebuilder:printcolumn:name="Max-Calls",type=integer,JSONPath=`.spec.maxConcurrentCalls`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.used.sessions`
// +kubebuilder:printcolumn:name="Max-Sessions",type=integer,JSONPath=`.spec.maxSessions`
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=`.status.used.cpuSeconds`
// +kubebuilder:printcolumn:name="Max-CPU",type=integer,JSONPath=`.spec.cpuSecondsPerHour`
// +kubebuilder:printcolumn:name="Pending-Bytes",type=integer,JSONPath=`.status.used.pendingBytes`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ToolBudget struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how much may be used.
	// +required
	Spec ToolBudgetSpec `json:"spec"`

	// status says how much is in use.
	// +optional
	Status ToolBudgetStatus `json:"status,omitempty"`
}

// ToolBudgetList is a list of ToolBudget.
//
// +kubebuilder:object:root=true
type ToolBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ToolBudget `json:"items"`
}
