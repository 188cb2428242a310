package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExecutionPolicyStatus says whether the policy can be used.
type ExecutionPolicyStatus struct {
	// conditions holds Ready: False names the field that can't be used.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that this status was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ExecutionPolicy says what the calls of the environments that name it may do. Annotate one with
// toolcall.dev/is-default-policy: "true" for the environments that name none.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=execpolicy,categories=toolcall-dev
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.metadata.annotations.toolcall\.dev/is-default-policy`
// +kubebuilder:printcolumn:name="Access",type=string,JSONPath=`.spec.access`
// +kubebuilder:printcolumn:name="Shell",type=boolean,JSONPath=`.spec.shell.enabled`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExecutionPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what is allowed.
	// +kubebuilder:default={}
	// +optional
	Spec ExecutionPolicySpec `json:"spec,omitempty"`

	// status says whether the policy can be used.
	// +optional
	Status ExecutionPolicyStatus `json:"status,omitempty"`
}

// ExecutionPolicyList is a list of ExecutionPolicy.
//
// +kubebuilder:object:root=true
type ExecutionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExecutionPolicy `json:"items"`
}
