package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func changedSession(change func(*v1alpha1.ToolSessionSpec)) client.Object {
	session := newSession("", "")
	change(&session.Spec)
	return session
}

func workspace(size string) *v1alpha1.SessionWorkspace {
	return &v1alpha1.SessionWorkspace{Size: resource.MustParse(size)}
}

func TestSessionsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	type spec = v1alpha1.ToolSessionSpec
	two := func(size int) func(*spec) {
		return func(s *spec) {
			value := strings.Repeat("x", size/2-1)
			s.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: value}, {Name: "B", Value: value}}
		}
	}
	calls := func(n int32) func(*spec) { return func(s *spec) { s.MaxConcurrentCalls = ptr.To(n) } }
	claim := func(size string) func(*spec) { return func(s *spec) { s.Workspace = workspace(size) } }
	for name, tc := range map[string]struct {
		change  func(*spec)
		refused string
	}{
		"nothing set":                     {func(*spec) {}, ""},
		"an environment and a skill":      {func(s *spec) { s.EnvironmentRef, s.SkillRef = ref("e"), ref("s") }, ""},
		"no environment name":             {func(s *spec) { s.EnvironmentRef = ref("") }, "spec.environmentRef.name"},
		"a NUL in the working directory":  {func(s *spec) { s.WorkingDir = "\x00" }, "spec.workingDir"},
		"a function in a variable":        {func(s *spec) { s.Env = []v1alpha1.CallEnvVar{{Name: "BASH_FUNC_x%%"}} }, "spec.env[0].name"},
		"the same variable twice":         {func(s *spec) { s.Env = []v1alpha1.CallEnvVar{{Name: "A"}, {Name: "A"}} }, "Duplicate value"},
		"128 KiB of variables":            {two(128 << 10), ""},
		"more than 128 KiB of variables":  {two(128<<10 + 2), "128 KiB"},
		"two-byte characters in them":     {func(s *spec) { s.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("é", 65536)}} }, "128 KiB"},
		"a workspace":                     {claim("10Gi"), ""},
		"a workspace of nothing":          {claim("0"), "workspace.size must be more than 0"},
		"a workspace of less":             {claim("-1Gi"), "workspace.size must be more than 0"},
		"a workspace that is kept":        {func(s *spec) { claim("1Gi")(s); s.Workspace.Retain = v1alpha1.RetainKeep }, ""},
		"a workspace that is archived":    {func(s *spec) { claim("1Gi")(s); s.Workspace.Retain = "Archive" }, "spec.workspace.retain"},
		"no idle timeout":                 {func(s *spec) { s.IdleTimeoutSeconds = ptr.To(int32(0)) }, ""},
		"a negative idle timeout":         {func(s *spec) { s.IdleTimeoutSeconds = ptr.To(int32(-1)) }, "spec.idleTimeoutSeconds"},
		"no lifetime":                     {func(s *spec) { s.MaxLifetimeSeconds = ptr.To(int32(0)) }, "spec.maxLifetimeSeconds"},
		"no calls at the same time":       {calls(0), "spec.maxConcurrentCalls"},
		"16 calls at the same time":       {calls(16), ""},
		"17 calls at the same time":       {calls(17), "spec.maxConcurrentCalls"},
		"no calls":                        {func(s *spec) { s.MaxCalls = ptr.To(int32(0)) }, "spec.maxCalls"},
		"more calls than a runner counts": {func(s *spec) { s.MaxCalls = ptr.To(int32(100001)) }, "spec.maxCalls"},
		"gone when it ends":               {func(s *spec) { s.TTLSecondsAfterEnded = ptr.To(int32(0)) }, ""},
		"suspended, without a workspace":  {func(s *spec) { s.Suspend = true }, "suspend needs a workspace"},
		"suspended":                       {func(s *spec) { claim("1Gi")(s); s.Suspend = true }, ""},
		"ended":                           {func(s *spec) { s.End = true }, ""},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, attempt{changedSession(tc.change), tc.refused}) })
	}
}

func ref(name string) *v1alpha1.LocalReference { return &v1alpha1.LocalReference{Name: name} }

func TestASessionShowsItsDefaults(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	for spec, retain := range map[string]map[string]any{
		``: nil, `,"spec":{}`: nil,
		`,"spec":{"workspace":{"size":"1Gi"}}`:      {"size": "1Gi", "retain": "Delete"},
		`,"spec":{"workspace":{"size":1073741824}}`: {"size": int64(1 << 30), "retain": "Delete"},
	} {
		got := s.specOf("ToolSession", "s", spec)
		delete(got, "requestedBy")
		want := map[string]any{
			"idleTimeoutSeconds": int64(900), "maxLifetimeSeconds": int64(28800), "maxConcurrentCalls": int64(1), "maxCalls": int64(10000),
			"ttlSecondsAfterEnded": int64(3600),
		}
		if retain != nil {
			want["workspace"] = retain
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", spec, diff)
		}
	}
}

// The operator keeps sessions in memory, and a status needs room beside them.
func TestSessionsAreBoundedInSize(t *testing.T) {
	s := newSpace(t)
	session := newSession(s.namespace, "large")
	session.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("x", 127<<10)}}
	session.Annotations = map[string]string{"example.com/a": strings.Repeat("x", 120<<10)}
	s.create(session)
	for size, refused := range map[int]string{100 << 10: "", 200 << 10: "256 KiB"} {
		session.Annotations["example.com/a"] = strings.Repeat("x", size)
		expectRefused(t, s.admin.Update(t.Context(), session.DeepCopy(), client.DryRunAll), refused)
		fresh := newSession(s.namespace, "fresh")
		fresh.Annotations, fresh.Spec.Env = session.Annotations, session.Spec.Env
		expectRefused(t, s.admin.Create(t.Context(), fresh, client.DryRunAll), refused)
	}
	// A character of two bytes counts as two.
	wide := newSession(s.namespace, "wide")
	wide.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: strings.Repeat("é", 60_000)}}
	wide.Annotations = map[string]string{"example.com/a": strings.Repeat("é", 90_000)}
	expectRefused(t, s.admin.Create(t.Context(), wide, client.DryRunAll), "256 KiB")
}

// fullSession has every field of a spec set but suspend, which may change.
func fullSession() v1alpha1.ToolSessionSpec {
	return v1alpha1.ToolSessionSpec{
		EnvironmentRef: ref("e"), SkillRef: ref("s"), WorkingDir: "/w",
		Env:                []v1alpha1.CallEnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}},
		Workspace:          &v1alpha1.SessionWorkspace{Size: resource.MustParse("1Gi"), StorageClassName: ptr.To("fast"), Retain: v1alpha1.RetainDelete},
		IdleTimeoutSeconds: ptr.To(int32(10)), MaxLifetimeSeconds: ptr.To(int32(20)), MaxConcurrentCalls: ptr.To(int32(2)), MaxCalls: ptr.To(int32(3)),
		TTLSecondsAfterEnded: ptr.To(int32(30)), End: true,
	}
}

func TestASessionsSpecIsImmutable(t *testing.T) {
	s := newSpace(t)
	user := s.as("somebody", asUser{groups: []string{"system:masters", "g"}, uid: "u", extra: map[string][]string{"k": {"v", "w"}}})
	session := newSession(s.namespace, "full")
	session.Spec = fullSession()
	if err := user.Create(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolSession"))
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(session), stored); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"suspend": true}
	for _, change := range changes(stored.Object["spec"], "spec") {
		field := strings.FieldsFunc(strings.TrimPrefix(change.path, "spec"), func(r rune) bool { return strings.ContainsRune(".[ ", r) })
		if len(field) == 0 || field[0] == "suspend" {
			continue
		}
		seen[field[0]] = true
		t.Run(change.path, func(t *testing.T) {
			attempted := stored.DeepCopy()
			attempted.Object["spec"] = change.value
			err := user.Update(t.Context(), attempted)
			// Defaults fill in what was taken away, and the schema misses what it requires before the policies are asked.
			refused := err != nil && (strings.Contains(err.Error(), field[0]+" is immutable") ||
				strings.Contains(err.Error(), field[0]+" can't be taken back") || strings.Contains(err.Error(), "spec."+field[0]))
			if isDefaulted := cmp.Equal(attempted.Object["spec"], stored.Object["spec"]); !refused && (err != nil || !isDefaulted) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, field := range jsonFields(v1alpha1.ToolSessionSpec{}) {
		if !seen[field] {
			t.Errorf("no change of spec.%s was tried", field)
		}
	}
}

func TestASessionIsSuspendedAndResumedAtWillAndEndsOnce(t *testing.T) {
	s := newSpace(t)
	session := newSession(s.namespace, "session")
	// A client that writes back what it read writes 1Gi.
	session.Spec.Workspace = workspace("1024Mi")
	s.create(session)
	for _, suspend := range []bool{true, false, true, false} {
		session.Spec.Suspend = suspend
		expectRefused(t, s.admin.Update(t.Context(), session), "")
	}
	session.Spec.End = true
	expectRefused(t, s.admin.Update(t.Context(), session), "")
	session.Spec.End = false
	expectRefused(t, s.admin.Update(t.Context(), session), "end can't be taken back")

	plain := newSession(s.namespace, "plain")
	s.create(plain)
	plain.Spec.Suspend = true
	expectRefused(t, s.admin.Update(t.Context(), plain), "suspend needs a workspace")
	plain.Spec.Suspend, plain.Spec.Workspace = true, workspace("1Gi")
	expectRefused(t, s.admin.Update(t.Context(), plain), "workspace is immutable")
}

// A client that writes back what it read, whatever way it writes it, changes nothing.
func TestEmptyAndAbsentAreTheSameInASession(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	session := &unstructured.Unstructured{}
	session.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolSession"))
	session.SetNamespace(s.namespace)
	session.SetName("empty")
	session.Object["spec"] = map[string]any{
		"env": []any{}, "workingDir": "", "workspace": map[string]any{"size": int64(1 << 30), "storageClassName": ""}, "suspend": false, "end": false,
		"requestedBy": map[string]any{"username": "", "uid": "", "groups": []any{}, "extra": map[string]any{}},
	}
	s.create(session)
	typed := &v1alpha1.ToolSession{}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(session), typed); err != nil {
		t.Fatal(err)
	}
	typed.Spec.Suspend = true
	expectRefused(t, s.admin.Update(t.Context(), typed), "")
}

func TestSessionsAndTheirCallsAreSelectedByTheirFields(t *testing.T) {
	s := newSpace(t)
	for _, user := range []string{"alice", "bob"} {
		s.grant(user, "toolsessions", "create")
	}
	for name, tc := range map[string]struct {
		user   string
		status v1alpha1.ToolSessionStatus
	}{
		"new":   {"alice", v1alpha1.ToolSessionStatus{}},
		"ready": {"alice", v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady, Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}}},
		"ended": {"bob", v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionEnded, Reason: v1alpha1.ReasonIdleTimeout}},
	} {
		session := newSession(s.namespace, name)
		if err := s.as(tc.user, asUser{}).Create(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		base := session.DeepCopy()
		session.Status = tc.status
		if err := s.admin.Status().Patch(t.Context(), session, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
	}
	for selector, want := range map[string]string{
		"status.phase=Ready": "ready", "status.phase!=Ended": "new ready", "status.reason=IdleTimeout": "ended",
		"status.environment.name=tools": "ready", "spec.requestedBy.username=alice": "new ready",
	} {
		if got := s.selected(&v1alpha1.ToolSessionList{}, selector); got != want {
			t.Errorf("%s selects %q; want %q", selector, got, want)
		}
	}
	inSession := newCall(s.namespace, "inside")
	inSession.Spec.SessionRef = &v1alpha1.SessionReference{Name: "ready"}
	s.create(inSession, newCall(s.namespace, "outside"))
	for selector, want := range map[string]string{"spec.sessionRef.name=ready": "inside", "spec.sessionRef.name=": "outside"} {
		if got := s.selected(&v1alpha1.ToolCallList{}, selector); got != want {
			t.Errorf("%s selects %q; want %q", selector, got, want)
		}
	}
}

// selected are the names of the objects that a field selector selects, sorted.
func (s *space) selected(list client.ObjectList, selector string) string {
	s.t.Helper()
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.admin.List(s.t.Context(), list, client.InNamespace(s.namespace), client.MatchingFieldsSelector{Selector: parsed}); err != nil {
		s.t.Fatalf("%s: %v", selector, err)
	}
	var names []string
	switch list := list.(type) {
	case *v1alpha1.ToolSessionList:
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	case *v1alpha1.ToolCallList:
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
	default:
		s.t.Fatal(fmt.Errorf("a list of type %T", list))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
