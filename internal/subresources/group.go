package subresources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	subresourcesv1alpha1 "toolcall.dev/operator/api/subresources/v1alpha1"
)

// GroupVersion is what this package serves.
var GroupVersion = subresourcesv1alpha1.GroupVersion

// newScheme has what the API server's library asks for: every resource is of some kind.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, kind := range []string{"ToolCall", "ToolSession"} {
		scheme.AddKnownTypeWithName(GroupVersion.WithKind(kind), &metav1.PartialObjectMetadata{})
	}
	// The library decodes into the internal version of a kind, which is the same here.
	scheme.AddKnownTypes(schema.GroupVersion{Group: GroupVersion.Group, Version: runtime.APIVersionInternal}, &subresourcesv1alpha1.ToolCallReview{})
	scheme.AddKnownTypes(GroupVersion, &subresourcesv1alpha1.ToolCallReview{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroup{}, &metav1.APIGroupList{}, &metav1.APIResourceList{})
	return scheme
}

// parent is the resource that subresources hang on. It has no verbs: the objects are those of the group toolcall.dev. It is also what the
// library asks of a review, which has no subresources.
type parent struct{ kind, singular string }

var (
	_ rest.Storage                  = parent{}
	_ rest.Scoper                   = parent{}
	_ rest.SingularNameProvider     = parent{}
	_ rest.GroupVersionKindProvider = parent{}
)

// New returns an object of the resource.
func (parent) New() runtime.Object { return &metav1.PartialObjectMetadata{} }

// Destroy does nothing.
func (parent) Destroy() {}

// NamespaceScoped says that the objects are in namespaces.
func (parent) NamespaceScoped() bool { return true }

// GetSingularName returns the name of one object.
func (p parent) GetSingularName() string { return p.singular }

// GroupVersionKind returns the kind of the objects.
func (p parent) GroupVersionKind(containing schema.GroupVersion) schema.GroupVersionKind {
	return containing.WithKind(p.kind)
}

// subresource is what is served below a parent.
type subresource struct {
	parent
	rest.Connecter
}

// newGroup is the group with all that it serves.
func newGroup(scheme *runtime.Scheme, codecs serializer.CodecFactory, log, proxy *endpoint, reviews *reviews) *genericapiserver.APIGroupInfo {
	call := parent{kind: "ToolCall", singular: "toolcall"}
	session := parent{kind: "ToolSession", singular: "toolsession"}
	group := genericapiserver.NewDefaultAPIGroupInfo(GroupVersion.Group, scheme, metav1.ParameterCodec, codecs)
	group.PrioritizedVersions = []schema.GroupVersion{GroupVersion}
	group.VersionedResourcesStorageMap[GroupVersion.Version] = map[string]rest.Storage{
		"toolcalls":     call,
		"toolcalls/log": subresource{call, log},

		"toolsessions":       session,
		"toolsessions/proxy": subresource{session, proxy},

		"toolcallreviews": reviews,
	}
	return &group
}
