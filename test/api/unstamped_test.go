package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/jobspec"
)

// needsNoStamp skips a test of what happens without MutatingAdmissionPolicies, where there are some.
func (s *space) needsNoStamp() {
	s.t.Helper()
	if s.stamps {
		s.t.Skip("the API server has MutatingAdmissionPolicy")
	}
}

// askedFor is what a client is told that doesn't say who creates a call, or not the truth.
const askedFor = "spec.requestedBy must be the user of the request"

var aliceIs = asUser{
	uid: "a-1", groups: []string{"readers", "writers"},
	extra: map[string][]string{"example.com/scopes": {"read", "write"}, "reason": {"test"}},
}

func alice() *v1alpha1.Requester {
	return &v1alpha1.Requester{
		Username: "alice", UID: "a-1", Groups: []string{"readers", "writers", "system:authenticated"},
		Extra: map[string]v1alpha1.ExtraValue{"example.com/scopes": {"read", "write"}, "reason": {"test"}},
	}
}

// lies are what somebody may say who would be somebody else, or more, or less: fewer groups or attributes can mean more rights,
// where an authorizer denies by them.
func lies() map[string]*v1alpha1.Requester {
	with := func(change func(*v1alpha1.Requester)) *v1alpha1.Requester {
		by := alice()
		change(by)
		return by
	}
	extra := func(key string, values ...string) *v1alpha1.Requester {
		return with(func(r *v1alpha1.Requester) { r.Extra[key] = values })
	}
	groups := func(groups ...string) *v1alpha1.Requester {
		return with(func(r *v1alpha1.Requester) { r.Groups = groups })
	}
	return map[string]*v1alpha1.Requester{
		"nothing":                 nil,
		"nobody":                  {},
		"somebody else":           with(func(r *v1alpha1.Requester) { r.Username = "admin" }),
		"all of somebody else":    {Username: "system:admin", Groups: []string{"system:masters"}},
		"a name alone":            {Username: "alice"},
		"no name":                 with(func(r *v1alpha1.Requester) { r.Username = "" }),
		"a name in capitals":      with(func(r *v1alpha1.Requester) { r.Username = "ALICE" }),
		"a name that looks alike": with(func(r *v1alpha1.Requester) { r.Username = "аlice" }),
		"a name with a space":     with(func(r *v1alpha1.Requester) { r.Username = "alice " }),
		"no uid":                  with(func(r *v1alpha1.Requester) { r.UID = "" }),
		"another uid":             with(func(r *v1alpha1.Requester) { r.UID = "a-2" }),
		"one more group":          groups("readers", "writers", "system:authenticated", "system:masters"),
		"another group":           groups("readers", "owners", "system:authenticated"),
		"a group less":            groups("readers", "system:authenticated"),
		"a group twice":           groups("readers", "writers", "system:authenticated", "system:authenticated"),
		"another order":           groups("writers", "readers", "system:authenticated"),
		"no groups":               groups(),
		"no attributes":           with(func(r *v1alpha1.Requester) { r.Extra = nil }),
		"an attribute less":       with(func(r *v1alpha1.Requester) { delete(r.Extra, "example.com/scopes") }),
		"one more attribute":      extra("more", "x"),
		"one more value":          extra("example.com/scopes", "read", "write", "admin"),
		"a value less":            extra("example.com/scopes", "read"),
		"another value":           extra("reason", "admin"),
		"no values":               extra("reason"),
	}
}

// newObjects are a call and a session that say who creates them.
func (s *space) newObjects(by *v1alpha1.Requester) []client.Object {
	call, session := newCall(s.namespace, ""), newSession(s.namespace, "")
	call.GenerateName, session.GenerateName = "c-", "s-"
	call.Spec.RequestedBy, session.Spec.RequestedBy = by.DeepCopy(), by.DeepCopy()
	return []client.Object{call, session}
}

func TestWithoutAStampOnlyTheTruthIsTaken(t *testing.T) {
	s := newSpace(t)
	s.needsNoStamp()
	for _, resource := range []string{"toolcalls", "toolsessions"} {
		s.grant("alice", resource, "create", "get", "patch", "update")
	}
	raw := s.raw("alice", aliceIs)
	for name, by := range lies() {
		for _, options := range [][]client.CreateOption{nil, {client.DryRunAll}} {
			for _, o := range s.newObjects(by) {
				if err := raw.Create(t.Context(), o, options...); err == nil || !strings.Contains(err.Error(), askedFor) || !strings.Contains(err.Error(), "kubectl auth whoami") {
					t.Errorf("%T by %s: %v", o, name, err)
				}
			}
		}
	}
	for _, o := range s.newObjects(alice()) {
		if err := raw.Create(t.Context(), o); err != nil {
			t.Errorf("%T by the truth: %v", o, err)
		}
	}
	// A name that is the client's own choice makes no difference.
	call := newCall(s.namespace, "named")
	expectRefused(t, raw.Create(t.Context(), call), askedFor)
	call.Spec.RequestedBy = alice()
	expectRefused(t, raw.Create(t.Context(), call), "")
}

// Who created a call or a session can't be changed later, on any cluster.
func TestWhoCreatedACallStays(t *testing.T) {
	s := newSpace(t)
	for _, resource := range []string{"toolcalls", "toolsessions"} {
		s.grant("alice", resource, "create", "get", "patch", "update")
	}
	for _, o := range s.newObjects(nil) {
		if err := s.as("alice", aliceIs).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		for name, by := range lies() {
			body, err := json.Marshal(map[string]any{"spec": map[string]any{"requestedBy": by}})
			if err != nil {
				t.Fatal(err)
			}
			// A merge patch of objects keeps what it doesn't name.
			if name == "a name alone" || name == "nobody" || name == "no name" || name == "no uid" || name == "an attribute less" || name == "no attributes" || name == "no groups" {
				continue
			}
			for who, c := range map[string]client.Client{"its creator": s.raw("alice", aliceIs), "an administrator": s.raw("root", asUser{groups: []string{"system:masters"}})} {
				err := c.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", body), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), "requestedBy is immutable") {
					t.Errorf("%T changed by %s to %s: %v", o, who, name, err)
				}
			}
		}
	}
}

// kubectl applies on the server, patches into being and replaces, and says who asks as the message tells it to.
func TestKubectlSaysWhoAsks(t *testing.T) {
	s := newSpace(t)
	s.needsNoStamp()
	s.grant("alice", "toolcalls", "create", "get", "patch", "update", "delete")
	said := s.run("--as=alice", "auth", "whoami", "-o", "json")
	review := &authenticationv1.SelfSubjectReview{}
	if err := json.Unmarshal([]byte(said), review); err != nil {
		t.Fatalf("%s: %v", said, err)
	}
	for i, how := range [][]string{{"create", "-f", "-"}, {"apply", "-f", "-"}, {"apply", "--server-side", "-f", "-"}, {"replace", "--force", "-f", "-"}} {
		spec := map[string]any{"structured": map[string]any{"binary": "ls"}}
		object := map[string]any{
			"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall", "spec": spec,
			"metadata": map[string]any{"name": fmt.Sprint("c", i), "namespace": s.namespace},
		}
		kubectl := append([]string{"--as=alice"}, how...)
		if said, err := s.Kubectl(asYAML(t, object), kubectl...); err == nil || !strings.Contains(said, askedFor) {
			t.Errorf("%v without it: %v: %s", how, err, said)
		}
		spec["requestedBy"] = review.Status.UserInfo
		if said, err := s.Kubectl(asYAML(t, object), kubectl...); err != nil {
			t.Errorf("%v: %s", how, said)
		}
	}
}

// What a restore tool brings back doesn't run again, though nothing cancels it.
func TestWithoutAStampWhatIsRestoredIsRefused(t *testing.T) {
	s := newSpace(t)
	s.needsNoStamp()
	for _, resource := range []string{"toolcalls", "toolsessions"} {
		s.grant("alice", resource, "create")
	}
	raw := s.raw("alice", aliceIs)
	for name, mark := range map[string]func(client.Object){
		"Velero's":          func(o client.Object) { o.SetLabels(map[string]string{"velero.io/restore-name": "nightly"}) },
		"Velero's backup's": func(o client.Object) { o.SetLabels(map[string]string{"velero.io/backup-name": "nightly"}) },
		"Stork's": func(o client.Object) {
			o.SetAnnotations(map[string]string{"stork.libopenstorage.org/migrated": "true"})
		},
		"our own": func(o client.Object) { o.SetAnnotations(map[string]string{v1alpha1.AnnotationRestored: "x"}) },
	} {
		for i, stopped := range s.newObjects(alice()) {
			o := s.newObjects(alice())[i]
			t.Logf("%T with the mark of %s", o, name)
			mark(o)
			mark(stopped)
			switch stopped := stopped.(type) {
			case *v1alpha1.ToolCall:
				stopped.Spec.Cancel = true
			case *v1alpha1.ToolSession:
				stopped.Spec.End = true
			}
			expectRefused(t, raw.Create(t.Context(), o), "must not run again")
			expectRefused(t, raw.Create(t.Context(), stopped), "")
		}
	}
}

// The operator believes what the policies checked: with a stamp or without.
func TestTheOperatorBelievesWhatIsInstalled(t *testing.T) {
	s := newSpace(t)
	requesters := &access.Requesters{Reader: s.admin}
	call, session := newCall(s.namespace, "call"), newSession(s.namespace, "session")
	// A call of the second in which the policies were made may not have been checked.
	eventually(t, func() error {
		call, session := call.DeepCopy(), session.DeepCopy()
		for _, o := range []client.Object{call, session} {
			if err := s.admin.Create(t.Context(), o, client.DryRunAll); err != nil {
				return err
			}
		}
		known, missing, err := requesters.Vouched(t.Context(), call)
		knownToo, missingToo, errToo := requesters.SessionVouched(t.Context(), session)
		if !known || !knownToo {
			return fmt.Errorf("missing: %s, %s: %w, %w", missing, missingToo, err, errToo)
		}
		return nil
	})
}

// The operator's account may make no Job in its own namespace, and finds out nevertheless.
func TestTheOperatorFindsOutWhetherThereAreImageVolumes(t *testing.T) {
	s := newSpace(t)
	version, err := s.Kubectl("", "version", "-o", "json")
	if err != nil {
		t.Fatal(version)
	}
	want := !strings.Contains(version, `"gitVersion": "v1.33.`)
	for _, namespace := range []string{operatorNamespace, s.namespace} {
		err := s.operator().Create(t.Context(), jobspec.ImageVolumeProbe(namespace), client.DryRunAll)
		if jobspec.HasImageVolumes(err) != want {
			t.Errorf("in %s, image volumes %t: %v", namespace, want, err)
		}
	}
}
