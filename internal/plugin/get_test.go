package plugin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

// tableOf is the table of some calls, with all columns but the age.
func tableOf(t *testing.T, o *getOptions, calls ...v1alpha1.ToolCall) string {
	t.Helper()
	if o.print == nil {
		o.print = newPrintFlags("")
	}
	var out strings.Builder
	if err := o.writeTable(&out, calls); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func exampleCalls() []v1alpha1.ToolCall {
	created := metav1.NewTime(time.Now().Add(-90 * time.Second))
	call := func(name string, s v1alpha1.ToolCallStatus) v1alpha1.ToolCall {
		return v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name, CreationTimestamp: created},
			Spec:       v1alpha1.ToolCallSpec{RequestedBy: &v1alpha1.Requester{Username: "alice"}}, Status: s,
		}
	}
	good := succeeded()
	good.Environment, good.Action = &v1alpha1.ResolvedEnvironment{Name: "tools"}, &v1alpha1.MappedAction{Summary: "git status"}
	good.Pod, good.Node = "good-abc", "node-1"
	return []v1alpha1.ToolCall{
		call("good", good),
		call("killed", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed, Reason: "Signaled", ExitCode: ptr.To(int32(-1)), DurationMilliseconds: ptr.To(int64(125_400))}),
		call("odd", v1alpha1.ToolCallStatus{Action: &v1alpha1.MappedAction{Summary: "a\tb\nc\x1b[0m"}}),
	}
}

func TestTableOfCalls(t *testing.T) {
	t.Parallel()
	expectText(t, "the table", `
NAME    PHASE      REASON     EXIT  ENVIRONMENT  ACTION      DURATION  AGE
good    Succeeded  Completed  0     tools        git status  7ms       90s
killed  Failed     Signaled   -1    -            -           2m5s      90s
odd     Pending    -          -     -            a b c^[[0m  -         90s
`, tableOf(t, &getOptions{}, exampleCalls()...))
}

func TestWideTableOfAllNamespaces(t *testing.T) {
	t.Parallel()
	o := &getOptions{allNamespaces: true, print: newPrintFlags("")}
	*o.print.OutputFormat = "wide"
	got := strings.Split(tableOf(t, o, exampleCalls()[:1]...), "\n")
	if want := "NAMESPACE NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION AGE REQUESTED-BY SESSION POD NODE"; strings.Join(strings.Fields(got[0]), " ") != want {
		t.Errorf("the header is %s", got[0])
	}
	if want := "agents good Succeeded Completed 0 tools git status 7ms 90s alice - good-abc node-1"; strings.Join(strings.Fields(got[1]), " ") != want {
		t.Errorf("the row is %s", got[1])
	}
}

// The newest call comes first; names, phases and labels select.
func TestGetSelectsCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		f.run("run", "--detach", "--name", name, "-l", "name="+name, "--", "ls").expect(t, 0)
	}
	f.end("a", succeeded())
	f.end("b", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: "CancelRequested"})
	names := func(args ...string) string {
		got := f.run(append([]string{"get", "-o", "name"}, args...)...)
		if got.code != 0 || got.err != "" {
			t.Errorf("%q: %+v", args, got)
		}
		return strings.ReplaceAll(strings.Join(strings.Fields(got.out), " "), "toolcall.toolcall.dev/", "")
	}
	for line, want := range map[string]string{
		"":                          "a b c",
		"--phase succeeded":         "a",
		"--phase Succeeded,PENDING": "a c",
		"--phase Cancelled":         "b",
		"--phase Running":           "",
		"-l name=b":                 "b",
		"-l name!=b":                "a c",
		"b a":                       "a b",
		"b a --phase Succeeded":     "a",
	} {
		got := strings.Fields(names(strings.Fields(line)...))
		if sorted := sortedFields(strings.Join(got, " ")); sorted != want {
			t.Errorf("get %s: %q, want %q", line, sorted, want)
		}
	}
	f.run("get", "--phase", "Running").expect(t, 0, "No calls found in namespace "+f.namespace+".")
	f.run("get", "-A", "-l", "name=none").expect(t, 0, "No calls found.")
}

func TestGetPrintsObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("a")
	f.detached("b")
	for line, kind := range map[string]string{"get a -o yaml": "ToolCall", "get a -o json": "ToolCall", "get -o yaml": "ToolCallList", "get a b -o json": "ToolCallList"} {
		got := f.run(strings.Fields(line)...)
		var object struct {
			APIVersion, Kind string
			Items            []struct{ APIVersion, Kind string }
		}
		if err := yaml.Unmarshal([]byte(got.out), &object); err != nil || got.code != 0 || object.Kind != kind || object.APIVersion != "toolcall.dev/v1alpha1" {
			t.Errorf("%s: %v, %+v\n%s", line, err, object, got.err)
		}
		for _, item := range object.Items {
			if item.Kind != "ToolCall" {
				t.Errorf("%s has an item of kind %q", line, item.Kind)
			}
		}
	}
	f.run("get", "a", "-o", "toml").expect(t, 1, "unable to match a printer")
	f.run("get", "-o", "custom-columns=NAME:.metadata.name").expect(t, 1, "unable to match a printer")
}
