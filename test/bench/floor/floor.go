// Package floor installs the kind ToolCall once more, in an API group of its own, and measures what a call in it costs as
// little as any can: somebody creates it, another client that sees it writes its status once, and that is seen. No operator
// knows the group, so that the API server is all there is, also where an operator runs. No operator can be faster.
package floor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/standalone"
)

// Variant is the kind ToolCall with all or some of what the project adds to it, as a copy in a group of its own, or, under
// the project's own group, the installed one.
type Variant struct {
	Title string
	// Group has the copy; Folder is where the definition is from, and Policies says whether admission policies apply.
	Group    string
	Folder   string
	Policies bool
	// Prefix begins the names of the copied policies.
	Prefix string
	// Stripped variants have no CEL rules in the definition; Rules are how many it has.
	Stripped bool
	Rules    int
	// Client creates the calls and Tracker sees their ends; another client, on a connection of its own, answers.
	Client  client.WithWatch
	Tracker *cluster.Tracker

	other   client.WithWatch
	created []*unstructured.Unstructured
}

const (
	// callDefinition and admissionPolicies are where those are below a folder of the project.
	callDefinition    = "config/crd/toolcall.dev_toolcalls.yaml"
	admissionPolicies = "config/admission"
	// output is the output of a call, in bytes: that of a small command.
	output = 64
)

// Install creates what the variant consists of, connects to it, and waits until calls in that namespace are answered as
// they should be. What was created must be uninstalled after a failure too.
func (v *Variant) Install(ctx context.Context, admin client.Client, conf *rest.Config, namespace string) error {
	objects, err := v.objects()
	if err != nil {
		return err
	}
	if v.Group != v1alpha1.GroupVersion.Group {
		for _, o := range objects {
			if err := cluster.Create(ctx, admin, o); err != nil {
				return err
			}
			v.created = append(v.created, o)
		}
	}
	for _, c := range []*client.WithWatch{&v.Client, &v.other} {
		if *c, err = cluster.ConnectFor(conf, v.scheme()); err != nil {
			return err
		}
	}
	return v.awaitInForce(ctx, namespace)
}

// Uninstall deletes what was created; what is gone already is fine.
func (v *Variant) Uninstall(ctx context.Context, admin client.Client) error {
	var failures []error
	for _, o := range v.created {
		if err := client.IgnoreNotFound(admin.Delete(ctx, o)); err != nil {
			failures = append(failures, fmt.Errorf("delete %s: %w", o.GetName(), err))
		}
	}
	v.created = nil
	return errors.Join(failures...)
}

// Start has the variant's calls in a namespace answered and tracked, each on a connection of its own.
func (v *Variant) Start(ctx context.Context, namespace string) (stop func() error, err error) {
	calls := cluster.Calls(namespace)
	stopAnswering, err := cluster.Answer(ctx, v.other, calls, func(ctx context.Context, o client.Object) error {
		return cluster.PatchStatus(ctx, v.other, o.(*v1alpha1.ToolCall), standalone.FinishedStatus(o.GetName(), output))
	})
	if err != nil {
		return nil, err
	}
	if v.Tracker, err = cluster.Track(ctx, v.Client, calls, nil); err != nil {
		return nil, errors.Join(err, stopAnswering())
	}
	return func() error {
		v.Tracker.Stop()
		return stopAnswering()
	}, nil
}

// Clear deletes a namespace's calls: the API server pays for each object that it has.
func (v *Variant) Clear(ctx context.Context, namespace string) error {
	if err := v.Client.DeleteAllOf(ctx, &v1alpha1.ToolCall{}, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("delete the calls of %s: %w", v.Title, err)
	}
	return nil
}

// scheme has the Go types of a call under the variant's group.
func (v *Variant) scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	version := schema.GroupVersion{Group: v.Group, Version: v1alpha1.GroupVersion.Version}
	s.AddKnownTypes(version, &v1alpha1.ToolCall{}, &v1alpha1.ToolCallList{})
	metav1.AddToGroupVersion(s, version)
	return s
}

// awaitInForce waits until the variant is served, and until policies stamp the creator of a call or, where there are
// none, makes sure that nobody does.
func (v *Variant) awaitInForce(ctx context.Context, namespace string) error {
	return cluster.Eventually(ctx, "it to be served", func(ctx context.Context) (bool, error) {
		probe := cluster.NewCall(metav1.ObjectMeta{Namespace: namespace, Name: "probe"}).(*v1alpha1.ToolCall)
		if err := v.Client.Create(ctx, probe, client.DryRunAll); err != nil {
			return false, nil
		}
		stamped := probe.Spec.RequestedBy != nil
		if stamped && !v.Policies {
			return false, fmt.Errorf("admission policies apply to group %s", v.Group)
		}
		return stamped == v.Policies, nil
	})
}

// objects are the variant's definition and, in its group, the project's policies about calls.
func (v *Variant) objects() ([]*unstructured.Unstructured, error) {
	objects, err := standalone.ReadManifests(filepath.Join(v.Folder, callDefinition))
	if err != nil {
		return nil, err
	}
	definition := objects[0]
	v.Rules = visitRules(definition.Object, v.Stripped)
	definition.SetName("toolcalls." + v.Group)
	if err := unstructured.SetNestedField(definition.Object, v.Group, "spec", "group"); err != nil || !v.Policies {
		return objects, err
	}
	policies, err := standalone.ReadManifests(filepath.Join(v.Folder, admissionPolicies))
	policies = aboutCalls(policies)
	for _, p := range policies {
		err = errors.Join(err, v.changePolicy(p))
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

// visitRules counts the CEL rules of a definition, or takes them away.
func visitRules(node any, strip bool) int {
	const key = "x-kubernetes-validations"
	rules := 0
	switch node := node.(type) {
	case map[string]any:
		if strip {
			delete(node, key)
		}
		if list, ok := node[key].([]any); ok {
			rules += len(list)
		}
		for _, child := range node {
			rules += visitRules(child, strip)
		}
	case []any:
		for _, child := range node {
			rules += visitRules(child, strip)
		}
	}
	return rules
}

// changePolicy moves a policy or a binding to the variant's group.
func (v *Variant) changePolicy(o *unstructured.Unstructured) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	const groups = `"apiGroups":["%s"]`
	raw = bytes.ReplaceAll(raw, fmt.Appendf(nil, groups, v1alpha1.GroupVersion.Group), fmt.Appendf(nil, groups, v.Group))
	if err := o.UnmarshalJSON(raw); err != nil {
		return err
	}
	o.SetName(v.Prefix + o.GetName())
	if policy, found, _ := unstructured.NestedString(o.Object, "spec", "policyName"); found {
		return unstructured.SetNestedField(o.Object, v.Prefix+policy, "spec", "policyName")
	}
	return nil
}
