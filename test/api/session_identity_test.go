package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Who may create calls in a session follows from who created it.
func TestWhoCreatesASessionIsWhoTheRequestIsFrom(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("alice", "toolsessions", "create", "get", "patch")
	alice := s.as("alice", asUser{uid: "a-1", groups: []string{"readers"}, extra: map[string][]string{"example.com/scopes": {"read", "write"}}})
	want := &v1alpha1.Requester{
		Username: "alice", UID: "a-1", Groups: []string{"readers", "system:authenticated"},
		Extra: map[string]v1alpha1.ExtraValue{"example.com/scopes": {"read", "write"}},
	}
	for name, written := range map[string]*v1alpha1.Requester{
		"nothing":    nil,
		"the truth":  want.DeepCopy(),
		"a group":    {Username: "alice", UID: "0", Groups: []string{"system:masters"}},
		"an extra":   {Username: "alice", Extra: map[string]v1alpha1.ExtraValue{"more": {"x"}}},
		"another":    {Username: "admin"},
		"empty ones": {Groups: []string{}, Extra: map[string]v1alpha1.ExtraValue{}},
	} {
		for _, options := range [][]client.CreateOption{nil, {client.DryRunAll}} {
			session := newSession(s.namespace, "")
			session.GenerateName, session.Spec.RequestedBy = "s-", written
			if err := alice.Create(t.Context(), session, options...); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, session.Spec.RequestedBy); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	text := asYAML(t, map[string]any{
		"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolSession", "metadata": map[string]any{"name": "applied", "namespace": s.namespace},
	})
	if said, err := s.Kubectl(text, "--as=alice", "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatalf("apply: %s", said)
	}
	if by := s.session("applied").Spec.RequestedBy; by == nil || by.Username != "alice" {
		t.Errorf("requestedBy of an applied session is %+v", by)
	}
}

func (s *space) session(name string) *v1alpha1.ToolSession {
	s.t.Helper()
	session := &v1alpha1.ToolSession{}
	if err := s.admin.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, session); err != nil {
		s.t.Fatal(err)
	}
	return session
}

func TestARestoredSessionHasEnded(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("velero", "toolsessions", "create")
	labelled := func(key string) func(*v1alpha1.ToolSession) {
		return func(o *v1alpha1.ToolSession) { o.Labels = map[string]string{key: "nightly"} }
	}
	phase := func(p v1alpha1.SessionPhase) func(*v1alpha1.ToolSession) {
		return func(o *v1alpha1.ToolSession) { o.Status.Phase = p }
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ToolSession)
		want   string
	}{
		"a new session": {func(*v1alpha1.ToolSession) {}, ""},
		"one's own name": {func(o *v1alpha1.ToolSession) {
			o.Spec.RequestedBy = &v1alpha1.Requester{Username: "velero", UID: "other"}
		}, ""},
		"another's name": {func(o *v1alpha1.ToolSession) { o.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice"} }, v1alpha1.RestoredRequester},
		"another's name, ended": {func(o *v1alpha1.ToolSession) {
			o.Spec.End, o.Spec.RequestedBy = true, &v1alpha1.Requester{Username: "alice"}
		}, v1alpha1.RestoredRequester},
		"one that was suspended": {phase(v1alpha1.SessionSuspended), ""},
		"one that had ended":     {phase(v1alpha1.SessionEnded), v1alpha1.RestoredStatus},
		"from Velero":            {labelled("velero.io/restore-name"), v1alpha1.RestoredTool},
		"from Velero's backup":   {labelled("velero.io/backup-name"), v1alpha1.RestoredTool},
		"from Stork": {func(o *v1alpha1.ToolSession) {
			o.Annotations = map[string]string{"stork.libopenstorage.org/migrated": "true"}
		}, v1alpha1.RestoredTool},
		"with a mark of its own": {func(o *v1alpha1.ToolSession) {
			o.Annotations = map[string]string{v1alpha1.AnnotationRestored: "x", "a": "b"}
		}, ""},
		"with another mark": {func(o *v1alpha1.ToolSession) {
			o.Annotations = map[string]string{v1alpha1.AnnotationRestored: "x", "a": "b"}
			o.Status.Phase = v1alpha1.SessionEnded
		}, v1alpha1.RestoredStatus},
	} {
		t.Run(name, func(t *testing.T) {
			session := newSession(s.namespace, "")
			session.GenerateName = "r-"
			tc.change(session)
			others := session.Annotations["a"]
			if err := s.as("velero", asUser{}).Create(t.Context(), session); err != nil {
				t.Fatal(err)
			}
			mark, marked := session.Annotations[v1alpha1.AnnotationRestored]
			if mark != tc.want || marked != (tc.want != "") || session.Spec.End != (tc.want != "") {
				t.Errorf("the mark is %q, end is %t", mark, session.Spec.End)
			}
			if by := session.Spec.RequestedBy; by.Username != "velero" || session.Annotations["a"] != others {
				t.Errorf("requestedBy is %+v, annotations are %v", by, session.Annotations)
			}
		})
	}
}

// The mark can't be taken off on the way: a session that lost it, or its requester, is refused.
func TestASessionThatIsChangedAfterTheStampIsRefused(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	for name, tc := range map[string]struct{ patch, refused string }{
		"end":       {`JSONPatch{op: "add", path: "/spec/end", value: false}`, "must not run again"},
		"requester": {`JSONPatch{op: "add", path: "/spec/requestedBy/username", value: "mallory"}`, "spec.requestedBy must be the user of the request"},
		"uid":       {`JSONPatch{op: "add", path: "/spec/requestedBy/uid", value: "other"}`, "spec.requestedBy must be the user of the request"},
		"extra":     {`JSONPatch{op: "add", path: "/spec/requestedBy/extra", value: {"k": ["v"]}}`, "spec.requestedBy must be the user of the request"},
		"groups":    {`JSONPatch{op: "add", path: "/spec/requestedBy/groups", value: ["system:masters", "root"]}`, "spec.requestedBy must be the user of the request"},
	} {
		t.Run(name, func(t *testing.T) {
			s.mutateLate("zz-s-"+s.namespace+"-"+name, tc.patch)
			session := newSession(s.namespace, "late")
			session.Labels = map[string]string{"test": "zz-s-" + s.namespace + "-" + name}
			session.Status.Phase = v1alpha1.SessionEnded
			eventually(t, func() error {
				err := s.admin.Create(t.Context(), session.DeepCopy(), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					return fmt.Errorf("got %v; want an error with %q", err, tc.refused)
				}
				return nil
			})
		})
	}
}
