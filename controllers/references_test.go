package controllers_test

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// takeAnyReference has the API server take references that can't be names, as an older CRD does, until the test ends.
func (w *world) takeAnyReference() {
	w.t.Helper()
	kinds := runtime.NewScheme()
	admin, err := client.New(apiServer, client.Options{Scheme: kinds})
	if err := errors.Join(err, v1alpha1.AddToScheme(kinds), apiextensionsv1.AddToScheme(kinds)); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"toolcalls.toolcall.dev", "toolsessions.toolcall.dev"} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := admin.Get(context.Background(), client.ObjectKey{Name: name}, crd); err != nil {
			w.t.Fatal(err)
		}
		before := crd.DeepCopy()
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		for _, ref := range []string{"environmentRef", "sessionRef", "skillRef"} {
			if of, has := spec.Properties[ref]; has {
				named := of.Properties["name"]
				named.Pattern = ""
				of.Properties["name"] = named
			}
		}
		if err := admin.Update(context.Background(), crd); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			before.ResourceVersion = crd.ResourceVersion
			if err := admin.Update(context.Background(), before); err != nil {
				w.t.Error(err)
			}
		})
	}
	ref := &v1alpha1.LocalReference{Name: ".."}
	for _, probe := range []client.Object{
		&v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}, EnvironmentRef: ref}},
		&v1alpha1.ToolSession{Spec: v1alpha1.ToolSessionSpec{EnvironmentRef: ref}},
	} {
		probe.SetNamespace(w.namespace)
		probe.SetName("probe")
		eventually(w.t, func() bool {
			probe.SetResourceVersion("")
			return admin.Create(context.Background(), probe, client.DryRunAll) == nil
		})
	}
}

// A client sends no request for a name that can't stand in a URL, and says so with an error of its own, which never passes.
func TestAReferenceThatCannotBeANameIsNotFound(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	w.takeAnyReference()
	for i, name := range []string{"a/b", "..", "a%b"} {
		suffix := string(rune('a' + i))
		inEnvironment := w.call("e-"+suffix, func(c *v1alpha1.ToolCall) { c.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name} })
		inSession := w.call("s-"+suffix, func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = &v1alpha1.SessionReference{Name: name} })
		cancelled := w.call("c-"+suffix, func(c *v1alpha1.ToolCall) {
			c.Spec.SessionRef, c.Spec.Cancel = &v1alpha1.SessionReference{Name: name}, true
		})
		for call, reason := range map[*v1alpha1.ToolCall]string{
			inEnvironment: v1alpha1.ReasonEnvironmentNotFound, inSession: v1alpha1.ReasonSessionNotFound, cancelled: v1alpha1.ReasonCancelRequested,
		} {
			w.reconcile(call)
			if s := w.get(call).Status; s.Reason != reason || !*s.RetrySafe {
				t.Errorf("%s %q: %s/%s: %s", call.Name, name, s.Phase, s.Reason, s.Message)
			}
		}
		session := w.session("t-"+suffix, func(s *v1alpha1.ToolSession) { s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: name} })
		w.keep(session)
		if s := w.getSession(session).Status; s.Phase != v1alpha1.SessionEnded {
			t.Errorf("a session in %q: %s/%s: %s", name, s.Phase, s.Reason, s.Message)
		}
		gone := session.DeepCopy()
		gone.Name = name
		w.keep(gone)
	}
}
