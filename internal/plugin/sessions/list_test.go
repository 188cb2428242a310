package sessions

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

func TestTableOfSessions(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	session := func(name string, change func(*v1alpha1.ToolSession)) v1alpha1.ToolSession {
		s := v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-90 * time.Second))}}
		change(&s)
		return s
	}
	sessions := []v1alpha1.ToolSession{
		session("dev", func(s *v1alpha1.ToolSession) {
			plugintest.OnVolume(s)
			s.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice"}
			s.Status = v1alpha1.ToolSessionStatus{Phase: v1alpha1.SessionReady, Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}, Incarnation: 2, Pod: "dev-2", Node: "node-1"}
		}),
		session("full", func(s *v1alpha1.ToolSession) {
			s.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: "repo"}
			s.Status.Phase = v1alpha1.SessionPending
			meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonTooManySessions})
		}),
		session("new", func(*v1alpha1.ToolSession) {}),
		session("old", func(s *v1alpha1.ToolSession) { s.Status.Phase, s.Status.Reason = v1alpha1.SessionEnded, "Idle\x1b[0m" }),
	}
	table := func(format string, all bool) string {
		var out bytes.Buffer
		o := &sessionListOptions{allNamespaces: all, formats: cli.NewFormats("wide")}
		*o.formats.OutputFormat = format
		if err := o.writeTable(&out, sessions, now); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	plugintest.ExpectText(t, "the table", `
NAME  PHASE    REASON           ENVIRONMENT  WORKSPACE  AGE
dev   Ready    -                tools        1Gi        90s
full  Pending  TooManySessions  repo         -          90s
new   Pending  -                -            -          90s
old   Ended    Idle^[[0m        -            -          90s
`, table("", false))
	wide := strings.Split(table("wide", true), "\n")
	if got := strings.Join(strings.Fields(wide[0]), " "); got != "NAMESPACE NAME PHASE REASON ENVIRONMENT WORKSPACE AGE REQUESTED-BY INCARNATION POD NODE" {
		t.Errorf("the header is %s", got)
	}
	if got := strings.Join(strings.Fields(wide[1]), " "); got != "agents dev Ready - tools 1Gi 90s alice 2 dev-2 node-1" {
		t.Errorf("the row is %s", got)
	}
}

func TestListSelectsSessions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Run("session", "list").Expect(t, 0, "No sessions found in namespace "+f.Namespace+".")
	for _, name := range []string{"a", "b", "c"} {
		f.Session(name, func(s *v1alpha1.ToolSession) { s.Labels = map[string]string{"name": name} })
	}
	f.SetSession("a", plugintest.InPhase(v1alpha1.SessionReady))
	f.SetSession("b", plugintest.InPhase(v1alpha1.SessionEnded))
	for line, want := range map[string]string{"": "a b c", "--phase ready": "a", "--phase Ended,PENDING": "b c", "-l name=b": "b", "--phase Suspended": ""} {
		got := f.Run(append([]string{"session", "list", "-o", "name"}, strings.Fields(line)...)...)
		if names := plugintest.SortedFields(strings.ReplaceAll(got.Out, "toolsession.toolcall.dev/", "")); got.Code != 0 || names != want {
			t.Errorf("%s: %q, want %q", line, names, want)
		}
	}
	f.Run("session", "list", "-A").Expect(t, 0, "NAMESPACE NAME", f.Namespace+" a Ready")
	f.Run("session", "list", "-l", "((").Expect(t, 1, "--selector")
	f.Run("session", "list", "--phase", "Odd").Expect(t, 1, `--phase "Odd": must be one of Pending, Ready, Suspended, Ended`)
	f.Run("session", "list", "-A", "-l", "name=none").Expect(t, 0, "No sessions found.")
	for format, kind := range map[string]string{"yaml": "ToolSessionList", "json": "ToolSessionList"} {
		got := f.Run("session", "list", "-o", format)
		var object struct {
			Kind  string
			Items []struct{ APIVersion, Kind string }
		}
		if err := yaml.Unmarshal([]byte(got.Out), &object); err != nil || object.Kind != kind || len(object.Items) != 3 || object.Items[0].Kind != "ToolSession" {
			t.Errorf("%s: %v, %+v", format, err, object)
		}
	}
}

func TestDescriptionOfASession(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "dev", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
	s.Spec = v1alpha1.ToolSessionSpec{
		Workspace:  &v1alpha1.SessionWorkspace{Size: plugintest.ResourceOf("1Gi"), StorageClassName: ptr.To("fast"), Retain: v1alpha1.RetainKeep},
		WorkingDir: "/workspace/x", Env: []v1alpha1.CallEnvVar{{Name: "A", Value: "private"}}, Suspend: true,
		IdleTimeoutSeconds: ptr.To(int32(900)), MaxLifetimeSeconds: ptr.To(int32(3600)), MaxConcurrentCalls: ptr.To(int32(1)),
		MaxCalls: ptr.To(int32(10000)), TTLSecondsAfterEnded: ptr.To(int32(60)), RequestedBy: &v1alpha1.Requester{Username: "alice"},
	}
	s.Status = v1alpha1.ToolSessionStatus{
		Phase: v1alpha1.SessionSuspended, Reason: v1alpha1.ReasonSessionSuspended, Message: "suspended\x1b", Incarnation: 2, Pod: "dev-2", Node: "node-1",
		Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}, Calls: &v1alpha1.SessionCallsStatus{Ended: 41},
		Timings: &v1alpha1.SessionTimingsStatus{ReadyMilliseconds: ptr.To(int64(15)), Path: v1alpha1.PathWarm},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSessionSuspended, LastTransitionTime: metav1.NewTime(now),
		}},
	}
	calls := []v1alpha1.ToolCall{{
		ObjectMeta: metav1.ObjectMeta{Name: "server", CreationTimestamp: metav1.NewTime(now.Add(-30 * time.Second))},
		Spec:       v1alpha1.ToolCallSpec{Background: true},
		Status:     v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Action: &v1alpha1.MappedAction{Summary: "python3 -m http.server"}},
	}}
	var out bytes.Buffer
	if err := writeSession(&out, s, calls, now); err != nil {
		t.Fatal(err)
	}
	plugintest.ExpectText(t, "the description", `
Name:          dev
Namespace:     agents
Age:           60s
Requested by:  alice
Phase:         Suspended (SessionSuspended)
Message:       suspended^[
Requested:     suspension, until "kubectl toolcall session resume"
Calls:         41 had ended when the phase last changed
Environment:
  Name:                      tools
  Directory of the session:  /workspace/x
  Variables of the session:  A
Files:
  Workspace:      on a volume of 1Gi
  Storage class:  fast
  Volume:         kept when the session is deleted
Limits:
  Without calls:           suspended after 15m0s
  Lifetime:                1h0m0s, until 2030-01-02T04:03:05Z
  Calls at the same time:  1
  Calls:                   10000
  Kept after its end:      1m0s
Pod:
  Name:               dev-2
  Node:               node-1
  Pods so far:        2
  First ready after:  15ms
  Path:               warm (a pod from the pool)
Conditions:
  Ready:  False (SessionSuspended) since 03:04:05
Unfinished calls:
  NAME    PHASE    BACKGROUND  ACTION                  AGE
  server  Running  yes         python3 -m http.server  30s
`, out.String())
}

// describe lists the calls that wait or run in this session, and no others.
func TestDescribeListsUnfinishedCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	s := f.ReadySession("dev")
	f.ReadySession("other")
	f.Run("session", "describe", "dev").Expect(t, 0, "Phase: Ready", "Workspace: in the pod, lost with it", "Without calls: ended after 15m0s")
	for _, name := range []string{"waits", "runs", "done"} {
		f.Run("run", "--session", "dev", "--detach", "--name", name, "--", "ls").Expect(t, 0, name)
	}
	f.Run("run", "--session", "other", "--detach", "--name", "elsewhere", "--", "ls").Expect(t, 0)
	stranger := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "earlier"},
		Spec: v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "true"}, SessionRef: &v1alpha1.SessionReference{Name: s.Name, UID: "another"},
		},
	}
	f.Make(stranger)
	f.SetRunning("runs", "pod")
	f.End("done", plugintest.Succeeded())
	got := f.Run("session", "describe", "dev")
	got.Expect(t, 0, "waits Pending - - ", "runs Running - - ")
	for _, name := range []string{"done", "elsewhere", "earlier"} {
		if strings.Contains(got.Out, name) {
			t.Errorf("%s is listed: %s", name, got.Out)
		}
	}
	names := func(line string) string {
		out := f.Run(strings.Fields(line)...).Out
		return plugintest.SortedFields(strings.ReplaceAll(out, "toolcall.toolcall.dev/", ""))
	}
	for line, want := range map[string]string{
		"get --session other -o name":               "elsewhere",
		"get --session dev --phase Running -o name": "runs",
		"get runs elsewhere --session dev -o name":  "runs",
	} {
		if got := names(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	f.Run("session", "describe", "none").Expect(t, 1, `session none not found in namespace "`+f.Namespace, "session list")
}
