// Package v1alpha1 holds the kinds of the API group toolcall.dev: ToolCall, which says what to run;
// ToolSession, whose calls share a pod and a workspace; ExecutionEnvironment, which says where;
// ExecutionPolicy, which says what is allowed; ToolBudget, which says how much; ToolCallApproval, a person's decision about
// a call; and Skill, the variables of a skill that the agent has active.
//
// The package is data: types, their condition types and reasons, and the names of labels and
// annotations. It decides nothing, reads no clock and imports nothing of this project. Every string
// and list is bounded. Rules across fields are CEL rules, or ValidatingAdmissionPolicies in
// config/admission, whose messages name the fix.
//
// +kubebuilder:object:generate=true
// +groupName=toolcall.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "toolcall.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&ToolCall{}, &ToolCallList{},
		&ToolSession{}, &ToolSessionList{},
		&ExecutionEnvironment{}, &ExecutionEnvironmentList{},
		&ExecutionPolicy{}, &ExecutionPolicyList{},
		&Skill{}, &SkillList{},
		&ToolCallApproval{}, &ToolCallApprovalList{},
		&ToolBudget{}, &ToolBudgetList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
