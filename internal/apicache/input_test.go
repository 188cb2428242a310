package apicache

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

func callOf(spec v1alpha1.ToolCallSpec) *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "uid", ResourceVersion: "7"}, Spec: spec}
}

// filled are calls of every kind, each with that many bytes of input in one place.
func filled(size int) map[string]v1alpha1.ToolCallSpec {
	text := strings.Repeat("x", size)
	raw := `{"command":"` + strings.Repeat("x", max(size-len(`{"command":""}`), 0)) + `"}`
	return map[string]v1alpha1.ToolCallSpec{
		"a program":        {Structured: &v1alpha1.StructuredAction{Binary: text}},
		"arguments":        {Structured: &v1alpha1.StructuredAction{Binary: "ls", Args: []string{text[:size/2], text[:size-size/2-2]}}},
		"a shell line":     {Shell: &v1alpha1.ShellAction{Command: text}},
		"code":             {Code: &v1alpha1.CodeAction{Language: "python", Source: text}},
		"a tool":           {Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(raw)}}},
		"standard input":   {Shell: &v1alpha1.ShellAction{}, Stdin: text},
		"globs":            {Shell: &v1alpha1.ShellAction{}, Collect: []string{text[:1], text[1:]}},
		"edits":            {File: &v1alpha1.FileAction{Edits: []v1alpha1.TextReplacement{{OldString: text[:1], NewString: text[:1]}, {NewString: text[2:]}}}},
		"hosts":            {Shell: &v1alpha1.ShellAction{}, Network: &v1alpha1.CallNetwork{Hosts: []string{text[:1], text[1:]}}},
		"variables":        {Shell: &v1alpha1.ShellAction{}, Env: []v1alpha1.CallEnvVar{{Name: "A", Value: text[:size/2]}, {Name: "BC", Value: text[:size-size/2-3]}}},
		"names":            {Shell: &v1alpha1.ShellAction{}, Env: []v1alpha1.CallEnvVar{{Name: text}}},
		"a directory":      {Shell: &v1alpha1.ShellAction{Command: text[:size-4]}, WorkingDir: "/tmp"},
		"a bit everywhere": {Shell: &v1alpha1.ShellAction{Command: text[:10]}, Stdin: text[:10], Env: []v1alpha1.CallEnvVar{{Name: text[:10], Value: text[:size-30]}}},
	}
}

func TestTheInputOfACallIsCounted(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, maxCachedInput, 1 << 20} {
		for name, spec := range filled(size) {
			if got := InputBytes(callOf(spec)); got != size {
				t.Errorf("%s of %d bytes: %d", name, size, got)
			}
		}
	}
	if got := InputBytes(callOf(v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{Name: "bash"}})); got != 0 {
		t.Errorf("a tool without arguments: %d", got)
	}
}

// uncounted are the texts of a spec that are short, or not chosen by the call's creator.
var uncounted = []string{
	"Code.Language", "Tool.Name", "EnvironmentRef.Name", "SkillRef.Name", "SessionRef.Name", "SessionRef.UID",
	"File.Operation", "File.Unit", "File.Mode", "File.IfSHA256",
	"RequestedBy.Username", "RequestedBy.UID", "RequestedBy.Groups", "RequestedBy.Extra",
}

// fill gives each text and each list of bytes below v some content, and returns the size of those that are to be counted.
func fill(v reflect.Value, path string) (size int) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return fill(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				size += fill(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."))
			}
		}
		return size
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return 2
		}
		return fill(v.Index(0), path) + fill(v.Index(1), path)
	case reflect.String:
		v.SetString("text")
		if slices.Contains(uncounted, path) {
			return 0
		}
		return len("text")
	default:
		return 0
	}
}

func TestEachTextOfASpecIsCounted(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.ToolCallSpec{}
	want := fill(reflect.ValueOf(&spec).Elem(), "")
	if got := InputBytes(callOf(spec)); got != want {
		t.Errorf("%d bytes of %d are counted: a field is missing in InputBytes, or among those that aren't counted", got, want)
	}
}

func TestASmallInputStaysInTheCacheAndALargeOneDoesNot(t *testing.T) {
	t.Parallel()
	for name, spec := range filled(maxCachedInput) {
		call := callOf(spec)
		before := call.DeepCopy()
		slimCall(call)
		if diff := cmp.Diff(before, call); diff != "" || !isWhole(call) {
			t.Errorf("%s at the bound, whole: %t: %s", name, isWhole(call), diff)
		}
	}
	for name, spec := range filled(maxCachedInput + 1) {
		call := callOf(spec)
		slimCall(call)
		if isWhole(call) || InputBytes(call) != maxCachedInput+1 {
			t.Errorf("%s over the bound: whole: %t, %d bytes", name, isWhole(call), InputBytes(call))
		}
		raw, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 1024 {
			t.Errorf("%s over the bound: %d bytes are kept", name, len(raw))
		}
	}
}

func TestWhatTheOperatorDecidesByStaysWithALargeCall(t *testing.T) {
	t.Parallel()
	seconds, ttl := int32(7), int32(8)
	call := callOf(v1alpha1.ToolCallSpec{
		Shell: &v1alpha1.ShellAction{Command: strings.Repeat("x", maxCachedInput+1)}, Cancel: true, Trusted: true,
		EnvironmentRef: &v1alpha1.LocalReference{Name: "env"}, SkillRef: &v1alpha1.LocalReference{Name: "skill"},
		RequestedBy: &v1alpha1.Requester{Username: "alice"}, TimeoutSeconds: &seconds, TTLSecondsAfterFinished: &ttl, WorkingDir: "/tmp",
	})
	call.Labels = map[string]string{jobspec.LabelQueue: "q"}
	call.Annotations = map[string]string{
		v1alpha1.AnnotationTraceParent: "00-1-2-01", v1alpha1.AnnotationTraceState: "a=b", v1alpha1.AnnotationRestored: v1alpha1.RestoredStatus,
	}
	call.Finalizers = []string{"example.com/hold"}
	call.Generation, call.Status.Phase, call.Status.Runner = 2, v1alpha1.PhaseRunning, &v1alpha1.RunnerBinding{KeyHash: "k"}
	want := call.DeepCopy()
	slimCall(call)
	want.Spec.Shell = nil
	// That there is one: a call that is deleted ends, although it stays.
	want.Finalizers = []string{omittedFinalizers}
	want.Annotations[annotationInputBytes] = strconv.Itoa(maxCachedInput + 1 + len("/tmp"))
	if diff := cmp.Diff(want, call); diff != "" {
		t.Error(diff)
	}
}

// The mark is the operator's own, in memory only: what a client wrote there must neither hide the call's size from its
// requester's budget nor have the operator read each such call past its cache.
func TestAMarkThatAClientWroteCountsForNothing(t *testing.T) {
	t.Parallel()
	for _, forged := range []string{"0", "-1000000000", "1", "99999999", "x", ""} {
		for _, size := range []int{100, maxCachedInput + 1} {
			call := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: strings.Repeat("x", size)}})
			call.Annotations = map[string]string{annotationInputBytes: forged}
			slimCall(call)
			if InputBytes(call) != size || isWhole(call) != (size <= maxCachedInput) {
				t.Errorf("%q on a call of %d bytes: %d bytes, whole: %t", forged, size, InputBytes(call), isWhole(call))
			}
		}
	}
}

// kubectl apply writes the whole object into an annotation, and anybody may write more of them, or labels.
func TestMetadataIsNoWayAroundTheBound(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 200<<10)
	many := map[string]string{jobspec.LabelQueue: "q"}
	for i := range 5000 {
		many[fmt.Sprint("label-", i)] = strings.Repeat("x", 60)
	}
	var owners []metav1.OwnerReference
	for i := range 5000 {
		owners = append(owners, metav1.OwnerReference{Name: fmt.Sprint("owner-", i)})
	}
	for name, change := range map[string]func(*v1alpha1.ToolCall){
		"what was applied last": func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": large}
		},
		"an annotation in the project's name": func(c *v1alpha1.ToolCall) { c.Annotations = map[string]string{"toolcall.dev/x": large} },
		"an annotation that the operator reads": func(c *v1alpha1.ToolCall) {
			c.Annotations = map[string]string{v1alpha1.AnnotationTraceState: large, v1alpha1.AnnotationTraceParent: large, v1alpha1.AnnotationRestored: large}
		},
		"labels":     func(c *v1alpha1.ToolCall) { c.Labels = many },
		"owners":     func(c *v1alpha1.ToolCall) { c.OwnerReferences = owners },
		"finalizers": func(c *v1alpha1.ToolCall) { c.Finalizers = []string{large} },
	} {
		call := callOf(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "make"}})
		change(call)
		queue := call.Labels[jobspec.LabelQueue]
		restored := call.Annotations[v1alpha1.AnnotationRestored] != ""
		slimCall(call)
		raw, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 2*maxCachedInput {
			t.Errorf("%s: %d bytes are kept", name, len(raw))
		}
		if isWhole(call) || InputBytes(call) != len("make") {
			t.Errorf("%s: whole: %t, %d bytes of input", name, isWhole(call), InputBytes(call))
		}
		if call.Labels[jobspec.LabelQueue] != queue || (call.Annotations[v1alpha1.AnnotationRestored] != "") != restored {
			t.Errorf("%s: what the operator reads is gone: %v, %v", name, call.Labels, call.Annotations)
		}
	}
}
