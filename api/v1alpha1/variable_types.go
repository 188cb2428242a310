package v1alpha1

import corev1 "k8s.io/api/core/v1"

// EnvVar is a variable with a literal value or a reference that the kubelet resolves in the pod.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.value) && size(self.value) > 0 && has(self.valueFrom))",message="set value or valueFrom, not both"
// +kubebuilder:validation:XValidation:rule="!has(self.redact) || (has(self.valueFrom) && has(self.valueFrom.secretKeyRef))",message="redact is about the value of a Secret: set valueFrom.secretKeyRef, or leave redact out"
type EnvVar struct {
	// name of the variable: letters, digits and underscores, not starting with a digit.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +required
	Name string `json:"name"`

	// value of the variable, without NUL bytes; not expanded in any way. Empty when unset.
	// +kubebuilder:validation:MaxLength=131072
	// +kubebuilder:validation:Pattern=`^[^\x00]*$`
	// +optional
	Value string `json:"value,omitempty"`

	// valueFrom takes the value from a Secret's key, a ConfigMap's key or a field of the pod.
	// +optional
	ValueFrom *EnvVarSource `json:"valueFrom,omitempty"`

	// redact replaces the value of a secretKeyRef in what calls print and read, where the policy's output.redaction is
	// KnownValues. True when unset; other values have none. A key stays redacted if another variable or secret of the call's
	// context names it. Values of less than 8 bytes are never replaced.
	// +optional
	Redact *bool `json:"redact,omitempty"`
}

// EnvVarSource is where a variable's value comes from.
//
// +kubebuilder:validation:XValidation:rule="(has(self.secretKeyRef) ? 1 : 0) + (has(self.configMapKeyRef) ? 1 : 0) + (has(self.fieldRef) ? 1 : 0) == 1",message="set exactly one of secretKeyRef, configMapKeyRef and fieldRef"
type EnvVarSource struct {
	// secretKeyRef selects a key of a Secret in the same namespace.
	// +optional
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`

	// configMapKeyRef selects a key of a ConfigMap in the same namespace.
	// +optional
	ConfigMapKeyRef *corev1.ConfigMapKeySelector `json:"configMapKeyRef,omitempty"`

	// fieldRef selects a field of the pod, e.g. metadata.name, as in a Pod.
	// +optional
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}
