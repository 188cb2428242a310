package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/standalone"
)

// variant is the kind ToolCall with all or some of what the project adds to it. All but the first are copies of its
// definition in a group of their own, which the project's admission policies don't apply to: so all are there at the
// same time.
type variant struct {
	title string
	// group has the copy; folder is where the definition is from, and policies says whether admission policies apply.
	group    string
	folder   string
	policies bool
	// stripped variants have no CEL rules in the definition; rules are how many it has.
	stripped bool
	rules    int
	created  []*unstructured.Unstructured

	client, other client.WithWatch
	tracker       *cluster.Tracker
	alone, atOnce []float64
	took          time.Duration
	used          standalone.CPU
}

// Where the definition and the policies are below a folder of the project.
const (
	callDefinition    = "config/crd/toolcall.dev_toolcalls.yaml"
	admissionPolicies = "config/admission"
)

// besidePrefix begins the names of another checkout's policies.
const besidePrefix = "beside-"

// newVariants installs the variants and connects to each.
func (b *bench) newVariants(ctx context.Context) ([]*variant, error) {
	ours := v1alpha1.GroupVersion.Group
	variants := []*variant{
		{title: "as installed", group: ours, folder: ".", policies: true},
		{title: "without admission policies", group: "unguarded." + ours, folder: "."},
		{title: "without admission policies and CEL rules", group: "plain." + ours, folder: ".", stripped: true},
	}
	if b.beside != "" {
		variants = append(variants, &variant{title: "as in " + b.beside, group: "beside." + ours, folder: b.beside, policies: true})
	}
	for _, v := range variants {
		if err := b.install(ctx, v); err != nil {
			return nil, fmt.Errorf("variant %q: %w", v.title, err)
		}
	}
	// The API server publishes what the new kinds look like, and that takes processor time.
	return variants, cluster.Pause(ctx, settleTime)
}

// install creates what the variant consists of, and connects to it.
func (b *bench) install(ctx context.Context, v *variant) (err error) {
	if v.created, err = v.objects(); err != nil {
		return err
	}
	if v.group == v1alpha1.GroupVersion.Group {
		// The server came with it.
		v.created = nil
	}
	for _, o := range v.created {
		if err := cluster.Create(ctx, b.client, o); err != nil {
			return err
		}
	}
	for _, c := range []*client.WithWatch{&v.client, &v.other} {
		if *c, err = cluster.ConnectFor(b.server.Conf, v.scheme()); err != nil {
			return err
		}
	}
	v.used = standalone.CPU{}
	return v.awaitInForce(ctx)
}

// uninstall deletes what was created.
func (b *bench) uninstall(ctx context.Context, v *variant) error {
	for _, o := range v.created {
		if err := b.client.Delete(ctx, o); err != nil {
			return fmt.Errorf("delete %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// scheme has the Go types of a call under the variant's group.
func (v *variant) scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	version := schema.GroupVersion{Group: v.group, Version: v1alpha1.GroupVersion.Version}
	s.AddKnownTypes(version, &v1alpha1.ToolCall{}, &v1alpha1.ToolCallList{})
	metav1.AddToGroupVersion(s, version)
	return s
}

// awaitInForce waits until the variant is served, and until policies stamp the creator of a call or, where there are
// none, makes sure that nobody does.
func (v *variant) awaitInForce(ctx context.Context) error {
	return cluster.Eventually(ctx, "it to be served", func(ctx context.Context) (bool, error) {
		probe := cluster.NewCall(metav1.ObjectMeta{Namespace: floorNamespace, Name: "probe"}).(*v1alpha1.ToolCall)
		if err := v.client.Create(ctx, probe, client.DryRunAll); err != nil {
			return false, nil
		}
		stamped := probe.Spec.RequestedBy != nil
		if stamped && !v.policies {
			return false, fmt.Errorf("admission policies apply to group %s", v.group)
		}
		return stamped == v.policies, nil
	})
}

// objects are the variant's definition and, in its group, the project's policies.
func (v *variant) objects() ([]*unstructured.Unstructured, error) {
	objects, err := standalone.ReadManifests(filepath.Join(v.folder, callDefinition))
	if err != nil {
		return nil, err
	}
	definition := objects[0]
	v.rules = visitRules(definition.Object, v.stripped)
	definition.SetName("toolcalls." + v.group)
	if err := unstructured.SetNestedField(definition.Object, v.group, "spec", "group"); err != nil || !v.policies {
		return objects, err
	}
	policies, err := standalone.ReadManifests(filepath.Join(v.folder, admissionPolicies))
	for _, p := range policies {
		err = errors.Join(err, v.changePolicy(p))
	}
	return append(objects, policies...), err
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

// changePolicy moves a policy or a binding to the variant's group. One about other kinds is there twice then, and
// nothing of them is written meanwhile.
func (v *variant) changePolicy(o *unstructured.Unstructured) error {
	raw, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	const groups = `"apiGroups":["%s"]`
	raw = bytes.ReplaceAll(raw, fmt.Appendf(nil, groups, v1alpha1.GroupVersion.Group), fmt.Appendf(nil, groups, v.group))
	if err := o.UnmarshalJSON(raw); err != nil {
		return err
	}
	o.SetName(besidePrefix + o.GetName())
	if policy, found, _ := unstructured.NestedString(o.Object, "spec", "policyName"); found {
		return unstructured.SetNestedField(o.Object, besidePrefix+policy, "spec", "policyName")
	}
	return nil
}
