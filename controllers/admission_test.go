package controllers_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// manifests reads the objects of a folder of config/.
func manifests(t *testing.T, folder string) []client.Object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "config", folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
			o := &unstructured.Unstructured{}
			if err := decoder.Decode(o); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			objects = append(objects, o)
		}
	}
	if len(objects) == 0 {
		t.Fatalf("no manifests in %s", folder)
	}
	return objects
}

// withAdmission installs the admission policies, and waits until they are in force.
func (w *world) withAdmission() {
	w.t.Helper()
	ctx := context.Background()
	// Runs after the deletions below: the next test must not meet half of the policies.
	w.t.Cleanup(w.withoutAdmission)
	for _, o := range manifests(w.t, "admission") {
		if err := w.client.Create(ctx, o, client.DisableReadYourWritesConsistency); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = w.client.Delete(ctx, o, client.DisableReadYourWritesConsistency) })
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		probe := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "probe-"}, Spec: v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "x"}}}
		err := w.client.Create(ctx, probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		if err == nil && probe.Spec.RequestedBy != nil {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the admission policies are not in force: %v, %+v", err, probe.Spec.RequestedBy)
		}
	}
}

// withoutAdmission waits until no admission policy is in force any more.
func (w *world) withoutAdmission() {
	w.t.Helper()
	eventually(w.t, func() bool {
		probe := lsCall(w.namespace, "probe")
		err := w.client.Create(context.Background(), probe, client.DryRunAll, client.DisableReadYourWritesConsistency)
		return err == nil && probe.Spec.RequestedBy == nil
	})
}

// as is a client that acts as a user.
func (w *world) as(user string, groups ...string) client.Client {
	w.t.Helper()
	conf := rest.CopyConfig(apiServer)
	conf.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(conf, client.Options{Scheme: shared.GetScheme()})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// grant gives a subject verbs on a resource of the project in the namespace.
func (w *world) grant(subject rbacv1.Subject, resource string, names []string, verbs ...string) {
	w.t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"toolcall.dev"}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}},
	}
	w.create(role)
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{subject},
	})
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func lsCall(namespace, name string) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls"}},
	}
}

func TestNobodyCanSayThatSomebodyElseAsked(t *testing.T) {
	w := newWorld(t)
	w.withAdmission()
	w.grant(user("alice"), "toolcalls", nil, "create", "patch", "update", "get")
	alice := w.as("alice", "readers")
	call := lsCall(w.namespace, "spoofed")
	call.Spec.RequestedBy = &v1alpha1.Requester{Username: "admin", UID: "0", Groups: []string{"system:masters", "readers"}}
	if err := alice.Create(context.Background(), call); err != nil {
		t.Fatal(err)
	}
	by := w.get(call).Spec.RequestedBy
	if by == nil || by.Username != "alice" || by.UID != "" || strings.Join(by.Groups, ",") != "readers,system:authenticated" {
		t.Errorf("requestedBy is %+v", by)
	}
	call.Spec.RequestedBy.Username = "admin"
	if err := alice.Update(context.Background(), call); err == nil {
		t.Error("requestedBy was changed afterwards")
	}
}

func TestTrustIsARight(t *testing.T) {
	w := newWorld(t)
	w.withAdmission()
	w.grant(group("system:authenticated"), "toolcalls", nil, "create")
	w.grant(user("platform"), "executionenvironments", nil, "trust")
	for name, who := range map[string]string{"refused": "agent", "taken": "platform"} {
		call := lsCall(w.namespace, name)
		call.Spec.Trusted = true
		err := w.as(who).Create(context.Background(), call)
		if (err == nil) != (who == "platform") {
			t.Errorf("%s: %v", who, err)
		}
		if err != nil && !strings.Contains(err.Error(), `may "trust" executionenvironments`) {
			t.Errorf("the refusal says: %v", err)
		}
	}
}

func TestTheRightToUseAToolDecides(t *testing.T) {
	w := newWorld(t)
	w.environment("env", func(e *v1alpha1.ExecutionEnvironment) { asDefault(e); e.Spec.PolicyRef = nil })
	w.withAdmission()
	w.grant(group("system:authenticated"), "toolcalls", nil, "create")
	w.grant(user("named"), "tools", []string{"ls"}, "use")
	w.grant(group("listers"), "tools", []string{"ls"}, "use")
	w.grant(user("other"), "tools", []string{"cat"}, "use")
	// The operator believes stamps only on calls that are younger than the policies.
	time.Sleep(3 * time.Second)
	for who, tc := range map[string]struct {
		groups  []string
		allowed bool
	}{
		"named": {nil, true}, "grouped": {[]string{"listers"}, true}, "other": {nil, false}, "nobody": {nil, false},
	} {
		t.Run(who, func(t *testing.T) {
			call := lsCall(w.namespace, who)
			if err := w.as(who, tc.groups...).Create(context.Background(), call); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return w.client.Get(context.Background(), client.ObjectKeyFromObject(call), call) == nil })
			w.accept(call)
			s := w.get(call).Status
			if allowed := s.Phase == v1alpha1.PhasePending; allowed != tc.allowed {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if !tc.allowed && s.Reason != v1alpha1.ReasonAgentNotAllowed {
				t.Errorf("the reason is %s", s.Reason)
			}
		})
	}
}
