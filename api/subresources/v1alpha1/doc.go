// Package v1alpha1 holds the kinds of the API group subresources.toolcall.dev that clients create: ToolCallReview. The operator serves
// the group behind the cluster's API server and stores nothing of it, so that there is no CustomResourceDefinition.
//
// The package is data. Subresources of the group, such as toolcalls/log, carry bytes and have no types.
//
// +kubebuilder:object:generate=true
// +kubebuilder:skip
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "subresources.toolcall.dev", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &ToolCallReview{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
