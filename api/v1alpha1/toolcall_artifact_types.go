package v1alpha1

// Artifact is a file that a call made and that was kept after its end.
type Artifact struct {
	// path of the file, as its glob in spec.collect matched it: relative to the working directory, or absolute. It takes at
	// most 256 bytes as JSON.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +required
	Path string `json:"path"`

	// bytes is the size of the file.
	// +kubebuilder:validation:Minimum=0
	// +required
	Bytes int64 `json:"bytes"`

	// sha256 of the file, in lower-case hexadecimal.
	// +kubebuilder:validation:MaxLength=64
	// +required
	SHA256 string `json:"sha256"`

	// mediaType is what the file's first 512 bytes, and the end of its name, look like. Nobody vouches for it.
	// +kubebuilder:validation:MaxLength=64
	// +required
	MediaType string `json:"mediaType"`

	// state says whether the artifact can be read when the call's pod is gone: Storing, Complete or Lost. Absent where the
	// operator has no output store: the artifact can be read as long as the pod has it.
	// +optional
	State OutputState `json:"state,omitempty"`
}

// ArtifactsPolicy bounds what spec.collect of a call keeps. Files over a bound are left out; the call's end is the same.
type ArtifactsPolicy struct {
	// maxCount is how many files are kept of a call, at most 100. 0 keeps none. Default 100.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=100
	// +optional
	MaxCount *int32 `json:"maxCount,omitempty"`

	// maxBytes is the size of the largest file that is kept, in bytes. At most 1073741824; default 33554432 (32 MiB).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741824
	// +kubebuilder:default=33554432
	// +optional
	MaxBytes *int64 `json:"maxBytes,omitempty"`

	// maxTotalBytes is how many bytes are kept of all files of a call. They take space below /tmp of the pod. At most
	// 1073741824; default 134217728 (128 MiB).
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1073741824
	// +kubebuilder:default=134217728
	// +optional
	MaxTotalBytes *int64 `json:"maxTotalBytes,omitempty"`
}
