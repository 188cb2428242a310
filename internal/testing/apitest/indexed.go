package apitest

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Indexed reads from an API server, and lists default environments and policies as the operator's cache does, which has an index of them.
type Indexed struct{ client.Reader }

// List lists objects; a field selector stands for that index.
func (r Indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	selector := options.FieldSelector
	options.FieldSelector = nil
	if err := r.Reader.List(ctx, list, options); err != nil || selector == nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	var marked []runtime.Object
	for _, item := range items {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		annotations := object.GetAnnotations()
		if annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" || annotations[v1alpha1.AnnotationDefaultPolicy] == "true" {
			marked = append(marked, item)
		}
	}
	return meta.SetList(list, marked)
}
