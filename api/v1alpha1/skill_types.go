package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SkillSpec describes a skill.
//
// +kubebuilder:validation:XValidation:rule="!has(self.env) || self.env.map(e, size(e.name) + (has(e.value) ? size(e.value) : 0)).sum() <= 131072",message="env must not hold more than 131072 bytes (128 KiB) of names and values"
type SkillSpec struct {
	// description of the skill, for people.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Description string `json:"description,omitempty"`

	// env are the variables of a call that names the skill: over the default environment's, under those of
	// the environment that the call names.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []EnvVar `json:"env,omitempty"`
}

// Skill holds variables that come with a skill which the agent has active.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=toolcall-dev
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Skill struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the skill.
	// +required
	Spec SkillSpec `json:"spec"`
}

// SkillList is a list of Skill.
//
// +kubebuilder:object:root=true
type SkillList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Skill `json:"items"`
}
