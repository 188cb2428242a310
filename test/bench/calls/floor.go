package calls

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
	"toolcall.dev/operator/test/bench/standalone"
)

const (
	// floorTitle is what the floor is called.
	floorTitle = "floor"
	// settle lets the API server publish a new kind, and the operator come to rest.
	settle = 5 * time.Second
)

// floor is a cluster.Floor with the kind ToolCall once more, as a copy in a group of its own that no operator knows, so that
// the API server is all there is.
type floor struct {
	*cluster.Floor
	*room
	// client speaks of the copy.
	client client.WithWatch
}

// newFloor installs the copy until the part's end, and has its calls answered.
func (p *part) newFloor(ctx context.Context) (*floor, error) {
	r, err := p.newRoom(ctx, "floor")
	if err != nil {
		return nil, err
	}
	group := p.bench.name + "-" + p.name + "." + v1alpha1.GroupVersion.Group
	objects, err := copyOfKind(".", group, r.namespace+"-")
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := cluster.Create(ctx, p.client, o); err != nil {
			return nil, err
		}
		p.stops = append(p.stops, func() error { return client.IgnoreNotFound(p.client.Delete(context.WithoutCancel(ctx), o)) })
	}
	scheme := schemeOfCopy(group)
	f := &floor{room: r}
	if f.client, err = cluster.ConnectFor(p.conf, scheme); err != nil {
		return nil, err
	}
	other, err := cluster.ConnectFor(p.conf, scheme)
	if err != nil {
		return nil, err
	}
	if err := cluster.AwaitStamp(ctx, f.client, f.namespace); err != nil {
		return nil, err
	}
	if f.Floor, err = cluster.StartFloor(ctx, f.client, other, r.namespace); err != nil {
		return nil, err
	}
	p.stops = append(p.stops, f.Floor.Stop)
	return f, measure.Pause(ctx, settle)
}

// run has the floor's call of that name answered.
func (f *floor) run(ctx context.Context, name string) error {
	_, err := f.Run(ctx, cluster.NewCall(f.namespace, name))
	return err
}

// clear deletes the floor's calls: the API server pays for each object that it has.
func (f *floor) clear(ctx context.Context) error {
	if err := f.client.DeleteAllOf(ctx, &v1alpha1.ToolCall{}, client.InNamespace(f.namespace)); err != nil {
		return fmt.Errorf("delete the calls of the floor: %w", err)
	}
	return nil
}

// schemeOfCopy has the Go types of a call under another group.
func schemeOfCopy(group string) *runtime.Scheme {
	s := runtime.NewScheme()
	version := schema.GroupVersion{Group: group, Version: v1alpha1.GroupVersion.Version}
	s.AddKnownTypes(version, &v1alpha1.ToolCall{}, &v1alpha1.ToolCallList{})
	metav1.AddToGroupVersion(s, version)
	return s
}

// copyOfKind is the definition of ToolCall in another group, and copies of the project's policies about calls there, whose
// names have that prefix.
func copyOfKind(project, group, prefix string) ([]*unstructured.Unstructured, error) {
	objects, err := standalone.ReadManifests(filepath.Join(project, "config/crd/toolcall.dev_toolcalls.yaml"))
	if err != nil {
		return nil, err
	}
	definition := objects[0]
	definition.SetName("toolcalls." + group)
	if err := unstructured.SetNestedField(definition.Object, group, "spec", "group"); err != nil {
		return nil, err
	}
	policies, err := standalone.ReadManifests(filepath.Join(project, "config/admission"))
	policies = aboutCalls(policies)
	for _, p := range policies {
		err = errors.Join(err, movePolicy(p, group, prefix))
	}
	return append(objects, policies...), err
}

// aboutCalls are the policies that match calls, and their bindings. A second copy of the others would apply to what the
// operator really does.
func aboutCalls(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	names := map[string]bool{}
	for _, o := range objects {
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
		for _, rule := range rules {
			fields, _ := rule.(map[string]any)
			resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
			if slices.ContainsFunc(resources, func(r string) bool { return r == "toolcalls" || r == "toolcalls/status" }) {
				names[o.GetName()] = true
			}
		}
	}
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		policy, bound, _ := unstructured.NestedString(o.Object, "spec", "policyName")
		return !names[o.GetName()] && (!bound || !names[policy])
	})
}

// movePolicy moves a policy or a binding to another group.
func movePolicy(o *unstructured.Unstructured, group, prefix string) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	const groups = `"apiGroups":["%s"]`
	raw = bytes.ReplaceAll(raw, fmt.Appendf(nil, groups, v1alpha1.GroupVersion.Group), fmt.Appendf(nil, groups, group))
	if err := o.UnmarshalJSON(raw); err != nil {
		return err
	}
	o.SetName(prefix + o.GetName())
	if policy, found, _ := unstructured.NestedString(o.Object, "spec", "policyName"); found {
		return unstructured.SetNestedField(o.Object, prefix+policy, "spec", "policyName")
	}
	return nil
}
