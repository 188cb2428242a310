package initialize

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
	"toolcall.dev/operator/internal/plugin/cli"
)

// applier writes a plan into a cluster.
type applier struct {
	*cli.Cluster
	plan  *plan
	force bool
}

// run reads all objects before it writes the first: what isn't init's own stops it before anything is changed.
func (a *applier) run(ctx context.Context) error {
	if err := a.keepDefault(ctx); err != nil {
		return err
	}
	objects := a.plan.objects()
	found := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		var err error
		if found[i], err = a.read(ctx, object); err != nil {
			return err
		}
	}
	for i, object := range objects {
		if err := a.write(ctx, object, found[i]); err != nil {
			return err
		}
	}
	return nil
}

// keepDefault leaves another environment of the namespace its default: with two, calls that name none would be denied.
func (a *applier) keepDefault(ctx context.Context) error {
	list := &v1alpha1.ExecutionEnvironmentList{}
	if err := a.Client.List(ctx, list, client.InNamespace(a.plan.namespace)); err != nil {
		return a.explained("read the environments of namespace "+a.plan.namespace, err)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Name != a.plan.agent && e.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true" {
			a.plan.isDefault = false
			a.Note(false, "The environment %s stays the default of the namespace: calls for %s have to name the environment.", e.Name, a.plan.agent)
			return nil
		}
	}
	return nil
}

// read returns the object that is there, or nil. It refuses one that init didn't write, except the namespace.
func (a *applier) read(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	err := a.Client.Get(ctx, client.ObjectKeyFromObject(object), there)
	switch {
	case apierrors.IsNotFound(err) && !follow.NotInstalled(err):
		return nil, nil
	case err != nil:
		return nil, a.explained("read "+reference(object), err)
	case object.GetKind() != "Namespace" && !isOwn(there):
		return nil, fmt.Errorf("%s exists, and init didn't write it: choose another --agent, or delete it first", reference(object))
	default:
		return there, nil
	}
}

func isOwn(object *unstructured.Unstructured) bool {
	return object.GetLabels()[v1alpha1.LabelManagedBy] == manager
}

// write applies an object and says what became of it.
func (a *applier) write(ctx context.Context, object, there *unstructured.Unstructured) error {
	if there != nil && !isOwn(there) {
		fmt.Fprintf(a.Out, "%s left as it is\n", reference(object))
		if there.GetLabels()["pod-security.kubernetes.io/enforce"] == "" {
			a.Note(false, "The namespace enforces no Pod Security Standard: consider kubectl label namespace %s pod-security.kubernetes.io/enforce=restricted", a.plan.namespace)
		}
		return nil
	}
	options := []client.ApplyOption{client.FieldOwner(manager)}
	if a.force {
		options = append(options, client.ForceOwnership)
	}
	name := reference(object)
	if err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return a.explained("write "+name, err)
	}
	done := "changed"
	switch {
	case there == nil:
		done = "created"
	case there.GetResourceVersion() == object.GetResourceVersion():
		done = "unchanged"
	}
	_, err := fmt.Fprintf(a.Out, "%s %s\n", name, done)
	return err
}

// reference names an object as kubectl does.
func reference(object *unstructured.Unstructured) string {
	return strings.ToLower(object.GetKind()) + "/" + object.GetName()
}

// explained adds what the user can do to the error of a request.
func (a *applier) explained(what string, err error) error {
	switch {
	case follow.NotInstalled(err):
		return fmt.Errorf("%s: this cluster lacks the kinds of the operator: install it, or choose another cluster with --context: %w", what, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: somebody else has changed it since: keep that with flags that say the same, or set the fields back with --force-conflicts: %w", what, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: init needs the rights of a cluster's administrator; --dry-run prints the objects for somebody who has them: %w", what, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}
