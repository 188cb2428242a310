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
