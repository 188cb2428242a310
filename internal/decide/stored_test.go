package decide_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/spec"
)

// stored is a decision whose call has variables of its own, and its call.
func stored(t *testing.T) (*decide.Decision, *v1alpha1.ToolCall) {
	t.Helper()
	s := snapshot(everySnapshot()["a call with all layers"]...)
	s.Call.Spec.Stdin, s.Call.Spec.WorkingDir = "input", "/a"
	d := mustDecide(t, s)
	d.CreatedMicroseconds, d.AcceptedMicroseconds = 1_700_000_000_123_456, 1_700_000_001_000_000
	return d, s.Call
}

func encode(t *testing.T, d *decide.Decision) []byte {
	t.Helper()
	raw, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decode(t *testing.T, raw []byte) *decide.Decision {
	t.Helper()
	d, err := decide.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatIsStoredOfADecisionComesBack(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	before := cmp.Diff(nil, d)
	got := decode(t, encode(t, d))
	last := len(d.Plan.Layers) - 1
	if d.Plan.Layers[last].Source != envresolve.SourceCall {
		t.Fatalf("the last layer is %s", d.Plan.Layers[last].Source)
	}
	want := *d
	want.Plan.Layers = d.Plan.Layers[:last]
	if diff := cmp.Diff(&want, got, cmpopts.IgnoreFields(decide.Decision{}, "In", "Default", "Policy", "Refs")); diff != "" {
		t.Error(diff)
	}
	if got.In != nil || got.Default != nil || got.Policy != nil || got.Refs != nil {
		t.Errorf("objects came back: %+v", got)
	}
	if !got.Created().Equal(time.UnixMicro(1_700_000_000_123_456)) || !got.Accepted().Equal(time.UnixMicro(1_700_000_001_000_000)) {
		t.Errorf("times: %s, %s", got.Created(), got.Accepted())
	}
	if after := cmp.Diff(nil, d); after != before {
		t.Error("encoding changed the decision")
	}
}

// The call's own variables may be large, and the call has them anyway.
func TestTheCallsOwnVariablesAreNotStored(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	for i, layer := range d.Plan.Layers {
		if layer.Source == envresolve.SourceCall {
			d.Plan.Layers[i].Vars = []envresolve.Var{{Name: "OWN", Value: strings.Repeat("own-value", decide.MaxStoredBytes)}}
		}
	}
	if raw := encode(t, d); strings.Contains(string(raw), "own-value") || strings.Contains(string(raw), "OWN") {
		t.Error("they are in what is stored")
	}
}

func TestADecisionIsStoredUpToItsBoundAndNoFurther(t *testing.T) {
	t.Parallel()
	with := func(size int) *decide.Decision {
		d, _ := stored(t)
		d.Plan.Layers[0].Vars[0].Value = strings.Repeat("x", size)
		return d
	}
	room := decide.MaxStoredBytes - len(encode(t, with(1))) + 1
	if raw := encode(t, with(room)); len(raw) != decide.MaxStoredBytes {
		t.Fatalf("a decision at the bound takes %d bytes", len(raw))
	}
	_, err := with(room + 1).Encode()
	if err == nil || !strings.Contains(err.Error(), "184321 bytes") || !strings.Contains(err.Error(), "at most 184320") || strings.Contains(err.Error(), "xxx") {
		t.Errorf("over the bound: %v", err)
	}
}

// What HTML has a meaning for takes no more room than other text.
func TestMarkupIsStoredAsItIs(t *testing.T) {
	t.Parallel()
	d, _ := stored(t)
	markup := strings.Repeat("<a>&</a>", decide.MaxStoredBytes/16)
	d.Plan.Layers[0].Vars[0].Value = markup
	if got := decode(t, encode(t, d)).Plan.Layers[0].Vars[0].Value; got != markup {
		t.Errorf("%d bytes came back as %d", len(markup), len(got))
	}
}

// Annotations on an object may have 256 KiB together, and sealing writes base64 of a few bytes more.
func TestASealedDecisionFitsAnAnnotation(t *testing.T) {
	t.Parallel()
	if sealed := (decide.MaxStoredBytes+64)*4/3 + 4; sealed > 256<<10-4<<10 {
		t.Errorf("%d bytes sealed leave no room for the Job's other annotations", sealed)
	}
}

func TestWhatWasNotStoredIsNotDecoded(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"", "{", "[]", `"x"`, `{"timeoutMilliseconds": "10"}`, `{"plan": []}`, `{} {}`} {
		if d, err := decide.Decode([]byte(raw)); err == nil || d != nil {
			t.Errorf("%q: %+v, %v", raw, d, err)
		}
	}
}

// FuzzDecode holds that what can be decoded encodes to the same decision again, whatever bytes come.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"environment":"env","argvPrefix":["bash","-c"],"timeoutMilliseconds":1,"plan":{"l":[{"s":"Default","v":[{"n":"A","v":"b"}]}]}}`))
	f.Add([]byte(`{"plan":{"l":[{"s":"Call","v":[{"n":"A"}]}],"t":true},"denyNetwork":true}`))
	f.Add([]byte(`{"createdMicroseconds":-1,"In":{"spec":{}},"refs":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		first, err := decide.Decode(raw)
		if err != nil {
			return
		}
		if first.In != nil || first.Policy != nil || first.Default != nil || first.Refs != nil {
			t.Fatalf("an object was decoded: %+v", first)
		}
		again, err := first.Encode()
		if err != nil {
			return
		}
		second := decode(t, again)
		third, err := second.Encode()
		if err != nil || string(third) != string(again) {
			t.Errorf("%q became %q, then %q, %v", raw, again, third, err)
		}
	})
}

// anyOrder: a layer has each name once, and their order means nothing.
var anyOrder = cmpopts.SortSlices(func(a, b envresolve.Var) bool { return a.Name < b.Name })

func TestAnAssignmentIsTheDecisionAndTheCallsOwnInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action v1alpha1.ToolCallSpec
		want   wire.Assignment
	}{
		"a program":                  {program("ls", "-l", "a b"), wire.Assignment{Argv: []string{"ls", "-l", "a b"}}},
		"a program without argument": {program("ls"), wire.Assignment{Argv: []string{"ls"}}},
		"a shell line":               {shell("ls; id"), wire.Assignment{Argv: []string{"bash", "-ec", "ls; id"}}},
		"code":                       {code("Python", "print(1)"), wire.Assignment{Argv: []string{"python3"}, Source: []byte("print(1)"), HasSource: true, Language: "python", Bounds: spec.Bounds{DenyNetwork: true}}},
		"empty code":                 {code("python", ""), wire.Assignment{Argv: []string{"python3"}, Source: []byte{}, HasSource: true, Language: "python", Bounds: spec.Bounds{DenyNetwork: true}}},
		"a tool":                     {tool("terminal", `{"command": "ls"}`), wire.Assignment{Argv: []string{"bash", "-ec", "ls"}}},
		"a tool that runs a program": {tool("exec", `{"mode": "structured", "binary": "ls", "args": ["-a"]}`), wire.Assignment{Argv: []string{"ls", "-a"}}},
	} {
		s := snapshot(append(everySnapshot()["a call with all layers"], runs(tc.action))...)
		s.Call.Spec.Stdin = "input"
		d := mustDecide(t, s)
		a, err := d.Assignment(s.Call)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !tc.want.HasSource {
			tc.want.Network = &spec.Network{Rules: network.Rules{Mode: network.Open, Implied: true}}
		}
		tc.want.CallUID, tc.want.CallName, tc.want.Stdin = "call-uid", "call", []byte("input")
		tc.want.TimeoutMilliseconds, tc.want.MaxBytesPerStream, tc.want.KeepBytesPerStream, tc.want.Environment = 120000, 65536, 8<<20, d.Plan
		if diff := cmp.Diff(&tc.want, a, anyOrder); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		// What was stored and read back gives the runner the very same.
		if restored, err := decode(t, encode(t, d)).Assignment(s.Call); err != nil || cmp.Diff(a, restored) != "" {
			t.Errorf("%s: from what was stored: %v %s", name, err, cmp.Diff(a, restored))
		}
	}
}

func TestAFileActionsAssignmentHasThePolicysRules(t *testing.T) {
	t.Parallel()
	encoded := "AP8="
	s := snapshot(append(everySnapshot()["a call with all layers"], runs(v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{
		Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: &encoded, Mode: "0600", IfSHA256: ptr.To(""),
	}}))...)
	s.Call.Spec.Stdin = ""
	s.Policies.Named.Spec.Files = &v1alpha1.FilesPolicy{
		ReadPaths: []string{"/r"}, WritePaths: []string{}, DeniedPaths: []string{".git"}, MaxReadBytes: ptr.To(int64(3)), MaxWriteBytes: ptr.To(int64(4)),
	}
	d := mustDecide(t, s)
	if d.Rules != nil {
		t.Errorf("it is held to %+v, which is about processes", d.Rules)
	}
	a, err := d.Assignment(s.Call)
	if err != nil {
		t.Fatal(err)
	}
	want := &spec.File{
		Operation: "Write", Path: "a", Content: []byte{0, 0xff}, Mode: ptr.To(uint32(0o600)), IfSHA256: ptr.To(""),
		Rules: spec.FileRules{ReadPaths: []string{"/r"}, WritePaths: []string{}, DeniedPaths: []string{".git"}, MaxReadBytes: 3, MaxWriteBytes: 4},
	}
	if diff := cmp.Diff(want, a.File); diff != "" || len(a.Argv) != 0 && a.Argv[0] == "" {
		t.Errorf("%s; argv %q", diff, a.Argv)
	}
	// An empty list is no list that is missing, also in what was stored.
	if restored, err := decode(t, encode(t, d)).Assignment(s.Call); err != nil || cmp.Diff(a, restored) != "" {
		t.Errorf("from what was stored: %v %s", err, cmp.Diff(a, restored))
	}
}

func TestAnAssignmentChangesNothingThatItIsMadeFrom(t *testing.T) {
	t.Parallel()
	d, call := stored(t)
	before, callBefore := cmp.Diff(nil, d), call.DeepCopy()
	for range 3 {
		a, err := d.Assignment(call)
		if err != nil {
			t.Fatal(err)
		}
		a.Argv[0] = "changed"
		a.Environment.Layers[0].Source = "changed"
		a.Environment.Layers = append(a.Environment.Layers, envresolve.Layer{Source: "more"})
	}
	if after := cmp.Diff(nil, d); after != before {
		t.Error("the decision was changed")
	}
	if diff := cmp.Diff(callBefore, call); diff != "" {
		t.Errorf("the call was changed: %s", diff)
	}
}

func TestACallWithoutVariablesHasNoLayer(t *testing.T) {
	t.Parallel()
	d, call := stored(t)
	call.Spec.Env = nil
	a, err := decode(t, encode(t, d)).Assignment(call)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Default", "Skill", "Environment"}, sources(&a.Environment)); diff != "" {
		t.Error(diff)
	}
}

// A call that the cache has without its input can't be handed over: an empty command would run.
func TestACallWithoutItsInputIsNotAssigned(t *testing.T) {
	t.Parallel()
	d, call := stored(t)
	call.Spec.Shell = nil
	a, err := d.Assignment(call)
	var refusal *decide.Refusal
	if err == nil || a != nil || errors.As(err, &refusal) {
		t.Errorf("got %+v, %v", a, err)
	}
}
