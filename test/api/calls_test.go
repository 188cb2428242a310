package api_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// attempt is one object that the API server takes, or refuses with a message that says what is wrong.
type attempt struct {
	object  client.Object
	refused string
}

func (s *space) attempt(t *testing.T, a attempt) {
	t.Helper()
	if _, cluster := a.object.(*v1alpha1.ExecutionPolicy); !cluster {
		a.object.SetNamespace(s.namespace)
	}
	a.object.SetGenerateName("x-")
	expectRefused(t, s.admin.Create(t.Context(), a.object, client.DryRunAll), a.refused)
}

// expectRefused wants an error with a text in it, or none for "".
func expectRefused(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case text == "" && err != nil:
		t.Errorf("refused: %v", err)
	case text != "" && (err == nil || !strings.Contains(err.Error(), text)):
		t.Errorf("got %v; want an error with %q", err, text)
	}
}

func changedCall(change func(*v1alpha1.ToolCallSpec)) client.Object {
	call := newCall("", "")
	change(&call.Spec)
	return call
}

func TestACallHasExactlyOneAction(t *testing.T) {
	s := newSpace(t)
	const one = "set exactly one of structured, shell, code, tool and file"
	actions := map[string]func(*v1alpha1.ToolCallSpec){
		"structured": func(s *v1alpha1.ToolCallSpec) { s.Structured = &v1alpha1.StructuredAction{Binary: "ls"} },
		"shell":      func(s *v1alpha1.ToolCallSpec) { s.Shell = &v1alpha1.ShellAction{Command: "x"} },
		"code":       func(s *v1alpha1.ToolCallSpec) { s.Code = &v1alpha1.CodeAction{Language: "python", Source: "1"} },
		"tool":       func(s *v1alpha1.ToolCallSpec) { s.Tool = &v1alpha1.ToolAction{Name: "bash"} },
		"file":       func(s *v1alpha1.ToolCallSpec) { s.File = &v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a"} },
	}
	s.attempt(t, attempt{changedCall(func(s *v1alpha1.ToolCallSpec) { s.Structured = nil }), one})
	for name, set := range actions {
		s.attempt(t, attempt{changedCall(func(s *v1alpha1.ToolCallSpec) { s.Structured = nil; set(s) }), ""})
		for other, setOther := range actions {
			if other != name {
				s.attempt(t, attempt{changedCall(func(s *v1alpha1.ToolCallSpec) { s.Structured = nil; set(s); setOther(s) }), one})
			}
		}
	}
}

func TestFileActionsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	for name, test := range map[string]struct {
		file    v1alpha1.FileAction
		refused string
	}{
		"a path as long as a path can be": {v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: strings.Repeat("x", 4096)}, ""},
		"a longer one":                    {v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: strings.Repeat("x", 4097)}, "spec.file.path"},
		"no path":                         {v1alpha1.FileAction{Operation: v1alpha1.FileStat}, "spec.file.path"},
		"a NUL in the path":               {v1alpha1.FileAction{Operation: v1alpha1.FileStat, Path: "a\x00"}, "spec.file.path"},
		"another operation":               {v1alpha1.FileAction{Operation: "Chmod", Path: "a"}, "spec.file.operation"},
		"another unit":                    {v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Unit: "Words"}, "spec.file.unit"},
		"a negative offset":               {v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Offset: new(int64(-1))}, "spec.file.offset"},
		"no limit at all":                 {v1alpha1.FileAction{Operation: v1alpha1.FileRead, Path: "a", Limit: new(int64(0))}, "spec.file.limit"},
		"512 KiB of text":                 {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(strings.Repeat("x", 512<<10))}, ""},
		"more text":                       {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(strings.Repeat("x", 512<<10+1))}, "spec.file.content"},
		"512 KiB in base64":               {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: new(strings.Repeat("AAAA", 512<<10/3) + "AAA=")}, ""},
		"what isn't base64":               {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", ContentBase64: new("?")}, "spec.file.contentBase64"},
		"permissions":                     {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(""), Mode: "0640"}, ""},
		"set-user-ID":                     {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(""), Mode: "4755"}, "spec.file.mode"},
		"a file that must not be there":   {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(""), IfSHA256: new("")}, ""},
		"no SHA-256":                      {v1alpha1.FileAction{Operation: v1alpha1.FileWrite, Path: "a", Content: new(""), IfSHA256: new("abc")}, "spec.file.ifSHA256"},
		"several edits": {v1alpha1.FileAction{
			Operation: v1alpha1.FileEdit, Path: "a", IfSHA256: new(strings.Repeat("a", 64)),
			Edits: []v1alpha1.TextReplacement{{OldString: "o"}, {OldString: "p", NewString: "q", ReplaceAll: true}},
		}, ""},
		"both forms of an edit": {v1alpha1.FileAction{
			Operation: v1alpha1.FileEdit, Path: "a", OldString: "o", Edits: []v1alpha1.TextReplacement{{OldString: "p"}},
		}, "use either edits, or oldString"},
		"an edit of nothing":            {v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", Edits: []v1alpha1.TextReplacement{{NewString: "p"}}}, "spec.file.edits[0].oldString"},
		"too many edits":                {v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "a", Edits: slices.Repeat([]v1alpha1.TextReplacement{{OldString: "p"}}, 101)}, "spec.file.edits"},
		"too many lines around a match": {v1alpha1.FileAction{Operation: v1alpha1.FileGrep, Path: "a", Pattern: "x", ContextLines: new(int32(21))}, "spec.file.contextLines"},
		"too many results":              {v1alpha1.FileAction{Operation: v1alpha1.FileList, Path: "a", MaxResults: new(int32(1001))}, "spec.file.maxResults"},
	} {
		t.Log(name)
		s.attempt(t, attempt{changedCall(func(s *v1alpha1.ToolCallSpec) { s.Structured, s.File = nil, &test.file }), test.refused})
	}
}

func TestToolCallsThatTheAPIServerTakesAndRefuses(t *testing.T) {
	s := newSpace(t)
	variable := func(name, value string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: name, Value: value}} }
	}
	two := func(value string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) {
			s.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: value}, {Name: "B", Value: value}}
		}
	}
	tool := func(arguments string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Tool = &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(arguments)}}
		}
	}
	code := func(size int) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) {
			s.Structured = nil
			s.Code = &v1alpha1.CodeAction{Language: "python", Source: strings.Repeat("#", size)}
		}
	}
	collect := func(globs ...string) func(*v1alpha1.ToolCallSpec) {
		return func(s *v1alpha1.ToolCallSpec) { s.Collect = globs }
	}
	for name, test := range map[string]struct {
		change  func(*v1alpha1.ToolCallSpec)
		refused string
	}{
		"globs to collect":                  {collect("out/**/*.png", "/tmp/{a,b}"), ""},
		"the most of them":                  {collect(repeated(strings.Repeat("x", 256), 16)...), ""},
		"too many of them":                  {collect(repeated("x", 17)...), "spec.collect"},
		"an empty glob":                     {collect("x", ""), "spec.collect[1]"},
		"a long glob":                       {collect(strings.Repeat("x", 257)), "spec.collect[0]"},
		"a NUL in a glob":                   {collect("a\x00"), "spec.collect[0]"},
		"an empty binary":                   {func(s *v1alpha1.ToolCallSpec) { s.Structured.Binary = "" }, ""},
		"a tool with any arguments":         {tool(`{"command":"ls","deep":{"a":[1,null,true]}}`), ""},
		"tool arguments that are no object": {tool(`[1]`), "must be of type object"},
		"a variable":                        {variable("A_1", "x"), ""},
		"an empty variable":                 {variable("A", ""), ""},
		"a variable that starts with 1":     {variable("1A", "x"), "spec.env[0].name"},
		"a function in a variable":          {variable("BASH_FUNC_x%%", "() { :; }"), "spec.env[0].name"},
		"an empty name":                     {variable("", "x"), "spec.env[0].name"},
		"a NUL in a value":                  {variable("A", "a\x00b"), "spec.env[0].value"},
		"the same variable twice":           {func(s *v1alpha1.ToolCallSpec) { s.Env = []v1alpha1.CallEnvVar{{Name: "A"}, {Name: "A"}} }, "Duplicate value"},
		"a NUL in the command":              {func(s *v1alpha1.ToolCallSpec) { s.Structured = nil; s.Shell = &v1alpha1.ShellAction{Command: "a\x00"} }, "spec.shell.command"},
		"a NUL in the working directory":    {func(s *v1alpha1.ToolCallSpec) { s.WorkingDir = "\x00" }, "spec.workingDir"},
		"128 KiB of variables":              {two(strings.Repeat("x", 65535)), ""},
		"more than 128 KiB of variables":    {two(strings.Repeat("x", 65536)), "131072 bytes"},
		"128 KiB of two-byte characters":    {two(strings.Repeat("é", 32767)), ""},
		"more of them":                      {two(strings.Repeat("é", 32768)), "131072 bytes"},
		"512 KiB of source":                 {code(524288), ""},
		"more source":                       {code(524289), "spec.code.source"},
		"a negative timeout":                {func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(-1)) }, "spec.timeoutSeconds"},
		"no time at all":                    {func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(0)) }, "spec.timeoutSeconds"},
		"a second":                          {func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(1)) }, ""},
		"a huge timeout":                    {func(s *v1alpha1.ToolCallSpec) { s.TimeoutSeconds = ptr.To(int32(2147483647)) }, ""},
		"no environment name":               {func(s *v1alpha1.ToolCallSpec) { s.EnvironmentRef = &v1alpha1.LocalReference{} }, "spec.environmentRef.name"},
		"a cancelled one":                   {func(s *v1alpha1.ToolCallSpec) { s.Cancel = true }, ""},
		"a session":                         {func(s *v1alpha1.ToolCallSpec) { s.SessionRef = &v1alpha1.SessionReference{Name: "n"} }, ""},
		"a session of a UID":                {func(s *v1alpha1.ToolCallSpec) { s.SessionRef = &v1alpha1.SessionReference{Name: "n", UID: "u"} }, ""},
		"a session without a name":          {func(s *v1alpha1.ToolCallSpec) { s.SessionRef = &v1alpha1.SessionReference{UID: "u"} }, "spec.sessionRef.name"},
		"a session and an environment": {func(s *v1alpha1.ToolCallSpec) {
			s.SessionRef, s.EnvironmentRef = &v1alpha1.SessionReference{Name: "n"}, &v1alpha1.LocalReference{Name: "e"}
		}, "sessionRef excludes environmentRef and skillRef"},
		"a session and a skill": {func(s *v1alpha1.ToolCallSpec) {
			s.SessionRef, s.SkillRef = &v1alpha1.SessionReference{Name: "n"}, &v1alpha1.LocalReference{Name: "s"}
		}, "sessionRef excludes environmentRef and skillRef"},
		"an environment and a skill": {func(s *v1alpha1.ToolCallSpec) {
			s.EnvironmentRef, s.SkillRef = &v1alpha1.LocalReference{Name: "e"}, &v1alpha1.LocalReference{Name: "s"}
		}, ""},
		"a server in a session": {func(s *v1alpha1.ToolCallSpec) {
			s.SessionRef, s.Background = &v1alpha1.SessionReference{Name: "n"}, true
		}, ""},
		"a server without a session": {func(s *v1alpha1.ToolCallSpec) { s.Background = true }, "background needs sessionRef"},
	} {
		t.Run(name, func(t *testing.T) { s.attempt(t, attempt{changedCall(test.change), test.refused}) })
	}
}

// The cost of an expression grows with what it looks at. The largest calls that the schema takes stay within what the
// API server spends, also where all is compared.
func TestTheLargestCallsAreJudged(t *testing.T) {
	s := newSpace(t)
	variables := make([]v1alpha1.CallEnvVar, 256)
	for i := range variables {
		variables[i] = v1alpha1.CallEnvVar{Name: fmt.Sprintf("V%0255d", i), Value: strings.Repeat("v", 256)}
	}
	const most = 524288
	for name, spec := range map[string]v1alpha1.ToolCallSpec{
		"code, stdin and variables": {
			Code:  &v1alpha1.CodeAction{Language: "python", Source: strings.Repeat("s", most)},
			Stdin: strings.Repeat("i", most-96<<10), Env: variables,
		},
		"arguments": {Structured: &v1alpha1.StructuredAction{Binary: "ls", Args: repeated(strings.Repeat("a", 1024), 1024)}},
		"a tool": {Tool: &v1alpha1.ToolAction{Name: "bash", Arguments: &runtime.RawExtension{
			Raw: []byte(`{"command":"` + strings.Repeat("c", 2*most) + `"}`),
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			call := &v1alpha1.ToolCall{Spec: spec}
			call.Namespace, call.GenerateName = s.namespace, "large-"
			s.create(call)
			call.Spec.Cancel = true
			if err := s.admin.Update(t.Context(), call); err != nil {
				t.Errorf("cancel it: %v", err)
			}
		})
	}
}

// What a call holds leaves room for its status: etcd takes objects of 1.5 MiB.
func TestACallLeavesRoomForItsStatus(t *testing.T) {
	s := newSpace(t)
	const limit = 1200 << 10
	for name, text := range map[string]string{
		"letters": "x", "quotes": `"`, "tags": "<", "control characters": "\x01", "bells": "\a", "line ends": "\n", "letters with accents": "é", "separators": "\u2028",
	} {
		t.Run(name, func(t *testing.T) {
			with := func(n int) client.Object {
				return changedCall(func(s *v1alpha1.ToolCallSpec) { s.Structured.Args = repeated(strings.Repeat(text, n/64), 64) })
			}
			encoded, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			each := len(encoded) - len(`""`)
			s.attempt(t, attempt{with((limit - 4096) / each), ""})
			s.attempt(t, attempt{with((limit + 4096) / each), "1200 KiB"})
		})
	}
}

// A call that runs can't be made so large that its end can't be written: not by labels and annotations, nor by who set
// them. What was too large before the rule may become smaller.
func TestACallsMetadataLeavesRoomForItsStatus(t *testing.T) {
	s := newSpace(t)
	call := &v1alpha1.ToolCall{Spec: v1alpha1.ToolCallSpec{
		Structured: &v1alpha1.StructuredAction{Binary: "ls", Args: repeated(strings.Repeat("x", 16<<10), 64)},
	}}
	call.SetNamespace(s.namespace)
	call.SetName("large")
	s.create(call)
	grow := func(change func()) error {
		if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), call); err != nil {
			t.Fatal(err)
		}
		change()
		return s.admin.Update(t.Context(), call)
	}
	annotate := func(text string, n int) func() {
		return func() { call.Annotations = map[string]string{"example.com/note": strings.Repeat(text, n)} }
	}
	label := func(n int) func() {
		return func() {
			call.Labels = map[string]string{}
			for i := range n {
				call.Labels[fmt.Sprintf("example.com/%063d", i)] = strings.Repeat("x", 63)
			}
		}
	}
	for name, tc := range map[string]struct {
		change  func()
		refused bool
	}{
		"a note":                         {annotate("x", 1000), false},
		"a long note":                    {annotate("x", 200<<10), true},
		"a note of control characters":   {annotate("\x01", 30<<10), true},
		"some labels":                    {label(100), false},
		"many labels":                    {label(1500), true},
		"many labels and a cancellation": {func() { label(1500)(); call.Spec.Cancel = true }, true},
		"a cancellation":                 {func() { call.Spec.Cancel = true }, false},
	} {
		err := grow(tc.change)
		if tc.refused && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "1200 KiB")) || !tc.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var err error
	for i := 0; i < 400 && err == nil; i++ {
		names := make([]string, 40)
		for j := range names {
			names[j] = fmt.Sprintf(`"example.com/%063d":"x"`, j)
		}
		patch := fmt.Sprintf(`{"apiVersion":"toolcall.dev/v1alpha1","kind":"ToolCall","metadata":{"labels":{%s}}}`, strings.Join(names, ","))
		err = s.admin.Patch(t.Context(), call.DeepCopy(), client.RawPatch(types.ApplyPatchType, []byte(patch)), client.FieldOwner(fmt.Sprint("manager-", i)), client.ForceOwnership)
	}
	if !apierrors.IsInvalid(err) {
		t.Errorf("many managers: %v", err)
	}
}

func repeated(text string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = text
	}
	return list
}

// fullSpecs have every field of a spec set, one for each action, and one in a session.
func fullSpecs() map[string]v1alpha1.ToolCallSpec {
	with := func(action v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
		if action.SessionRef == nil {
			action.EnvironmentRef = &v1alpha1.LocalReference{Name: "e"}
			action.SkillRef = &v1alpha1.LocalReference{Name: "s"}
		}
		action.WorkingDir, action.Stdin, action.Trusted = "/w", "in", true
		action.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}}
		action.Collect = []string{"out/*.png", "/tmp/report"}
		action.Network = &v1alpha1.CallNetwork{Hosts: []string{"a.example.com"}}
		action.TimeoutSeconds, action.TTLSecondsAfterFinished = ptr.To(int32(10)), ptr.To(int32(10))
		return action
	}
	return map[string]v1alpha1.ToolCallSpec{
		"structured": with(v1alpha1.ToolCallSpec{Structured: &v1alpha1.StructuredAction{Binary: "ls", Args: []string{"-l", "-a"}}}),
		"shell":      with(v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "ls"}}),
		"session": with(v1alpha1.ToolCallSpec{
			Shell: &v1alpha1.ShellAction{Command: "ls"}, SessionRef: &v1alpha1.SessionReference{Name: "n", UID: "u"}, Background: true,
		}),
		"code": with(v1alpha1.ToolCallSpec{Code: &v1alpha1.CodeAction{Language: "python", Source: "1", NetworkAccess: ptr.To(true)}}),
		"file": with(v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{
			Operation: v1alpha1.FileGrep, Path: "p", Offset: new(int64(1)), Limit: new(int64(2)), Unit: v1alpha1.UnitBytes,
			Content: new("c"), ContentBase64: new("AAAA"), Mode: "0600", IfSHA256: new(""), OldString: "o", NewString: "n", ReplaceAll: true,
			Pattern: "x", Literal: true, Glob: "*", Recursive: true, MaxResults: new(int32(3)), Destination: "d", Overwrite: true,
			ContextLines: new(int32(2)), RespectGitIgnore: true,
		}}),
		"edits": with(v1alpha1.ToolCallSpec{File: &v1alpha1.FileAction{
			Operation: v1alpha1.FileEdit, Path: "p", Edits: []v1alpha1.TextReplacement{{OldString: "o", NewString: "n", ReplaceAll: true}, {OldString: "p"}},
		}}),
		"tool": with(v1alpha1.ToolCallSpec{Tool: &v1alpha1.ToolAction{
			Name: "bash", Arguments: &runtime.RawExtension{Raw: []byte(`{"command":"ls","deep":{"list":[1,null,{"x":true}]}}`)},
		}}),
	}
}

func TestASpecIsImmutable(t *testing.T) {
	s := newSpace(t)
	user := s.as("somebody", asUser{groups: []string{"system:masters", "g"}, uid: "u", extra: map[string][]string{"k": {"v", "w"}}})
	seen := map[string]bool{}
	for name, spec := range fullSpecs() {
		call := &v1alpha1.ToolCall{Spec: spec}
		call.Namespace, call.Name = s.namespace, name
		if err := user.Create(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
		if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), stored); err != nil {
			t.Fatal(err)
		}
		for _, change := range changes(stored.Object["spec"], "spec") {
			field := strings.FieldsFunc(strings.TrimPrefix(change.path, "spec"), func(r rune) bool { return strings.ContainsRune(".[ ", r) })
			if len(field) == 0 {
				continue
			}
			seen[field[0]] = true
			if len(field) > 1 {
				seen[field[0]+"."+field[1]] = true
			}
			t.Run(name+" "+change.path, func(t *testing.T) {
				attempted := stored.DeepCopy()
				attempted.Object["spec"] = change.value
				err := user.Update(t.Context(), attempted)
				// What the schema requires is missed before the policies are asked.
				if err == nil || !strings.Contains(err.Error(), field[0]+" is immutable") && !strings.Contains(err.Error(), "spec."+field[0]) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	for _, field := range jsonFields(v1alpha1.ToolCallSpec{}) {
		if !seen[field] && field != "cancel" {
			t.Errorf("no change of spec.%s was tried", field)
		}
	}
	// Its fields are compared one by one.
	for _, field := range jsonFields(v1alpha1.FileAction{}) {
		if !seen["file."+field] {
			t.Errorf("no change of spec.file.%s was tried", field)
		}
	}
}

// changed is a value with a change somewhere in it.
type changed struct {
	path  string
	value any
}

// changes gives a copy of a JSON value for each way to change one thing in it: a value, a key or an element.
func changes(value any, path string) []changed {
	switch value := value.(type) {
	case map[string]any:
		var all []changed
		for key, inner := range value {
			for _, c := range changes(inner, path+"."+key) {
				all = append(all, changed{c.path, withKey(value, key, c.value)})
			}
			all = append(all, changed{path + "." + key + " without", withoutKey(value, key)})
		}
		return all
	case []any:
		all := []changed{{path + " shorter", value[:max(len(value)-1, 0)]}}
		for i, inner := range value {
			for _, c := range changes(inner, fmt.Sprintf("%s[%d]", path, i)) {
				list := append([]any{}, value...)
				list[i] = c.value
				all = append(all, changed{c.path, list})
			}
		}
		return all
	case string:
		return []changed{{path, value + "x"}}
	case bool:
		return []changed{{path, !value}}
	case int64:
		return []changed{{path, value + 1}}
	default:
		return []changed{{path, "not nothing"}}
	}
}

func withKey(m map[string]any, key string, value any) map[string]any {
	out := withoutKey(m, key)
	out[key] = value
	return out
}

func withoutKey(m map[string]any, key string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		if k != key {
			out[k] = v
		}
	}
	return out
}

// jsonFields are the names of a struct's fields in JSON.
func jsonFields(object any) []string {
	var names []string
	structure := reflect.TypeOf(object)
	for i := range structure.NumField() {
		name, _, _ := strings.Cut(structure.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func TestASpecMayBeCancelledOnce(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "cancelled")
	s.create(call)
	call.Spec.Cancel = true
	expectRefused(t, s.admin.Update(t.Context(), call), "")
	call.Spec.Cancel = false
	expectRefused(t, s.admin.Update(t.Context(), call), "cancel can't be taken back")
}

// The rules for changes look at the generation, which a client can't choose.
func TestAClientCannotClaimThatNothingChanged(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "claims")
	s.create(call)
	for _, generation := range []int64{0, 1, 2, 7} {
		changed := call.DeepCopy()
		changed.Generation, changed.Spec.Structured.Binary = generation, "id"
		expectRefused(t, s.admin.Update(t.Context(), changed), "structured is immutable")
		patch := fmt.Sprintf(`{"metadata":{"generation":%d},"spec":{"structured":{"binary":"id"}}}`, generation)
		expectRefused(t, s.admin.Patch(t.Context(), call.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch))), "structured is immutable")
	}
	said, err := s.Kubectl(asYAML(t, map[string]any{
		"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall",
		"metadata": map[string]any{"name": "claims", "namespace": s.namespace},
		"spec":     map[string]any{"structured": map[string]any{"binary": "id"}},
	}), "apply", "--server-side", "--force-conflicts", "-f", "-")
	if err == nil || !strings.Contains(said, "structured is immutable") {
		t.Errorf("server-side apply: %s", said)
	}
}

func TestMetadataOfACallMayBeEdited(t *testing.T) {
	s := newSpace(t)
	call := newCall(s.namespace, "labelled")
	s.create(call)
	s.run("label", "toolcall", "labelled", "team=x")
	s.run("annotate", "toolcall", "labelled", "note=y")
	s.run("label", "toolcall", "labelled", "team-")
	s.run("patch", "toolcall", "labelled", "--type=merge", "--subresource=status", `--patch={"status":{"phase":"Running"}}`)
	if got := s.run("get", "toolcall", "labelled", "--output=jsonpath={.metadata.generation}"); got != "1" {
		t.Errorf("the generation is %s", got)
	}
}

// A change of a label by a client that drops empty values isn't one of the spec, and so ends no call.
func TestALabelOfACallWithEmptyValuesMayBeEditedByATypedClient(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	call := &unstructured.Unstructured{}
	call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	call.SetNamespace(s.namespace)
	call.SetName("empty")
	call.Object["spec"] = map[string]any{
		"structured": map[string]any{"binary": "ls", "args": []any{}}, "sessionRef": map[string]any{"name": "s", "uid": ""}, "network": map[string]any{"hosts": []any{}},
		"env": []any{}, "collect": []any{}, "stdin": "", "workingDir": "", "trusted": false, "background": false, "cancel": false,
	}
	s.create(call)
	before := call.Object["spec"]
	typed := &v1alpha1.ToolCall{}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), typed); err != nil {
		t.Fatal(err)
	}
	typed.Labels = map[string]string{"team": "a"}
	expectRefused(t, s.admin.Update(t.Context(), typed), "")
	if typed.IsEdited() || typed.Labels["team"] != "a" {
		t.Errorf("its generation is %d, its labels are %v", typed.Generation, typed.Labels)
	}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), call); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, call.Object["spec"]); diff != "" {
		t.Error(diff)
	}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), typed); err != nil {
		t.Fatal(err)
	}
	typed.Spec.Cancel = true
	expectRefused(t, s.admin.Update(t.Context(), typed), "")
	if !typed.Spec.Cancel {
		t.Error("it wasn't cancelled")
	}
	typed.Spec.Structured.Args = []string{"-l"}
	expectRefused(t, s.admin.Update(t.Context(), typed), "structured is immutable")
	// The other way about it counts as the same too.
	bare := newCall(s.namespace, "bare")
	bare.Spec.Network = &v1alpha1.CallNetwork{}
	s.create(bare)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"network":{"hosts":[]},"cancel":true}}`))
	expectRefused(t, s.admin.Patch(t.Context(), bare, patch), "")
}

// A client that reads an object into a type and writes it back drops empty values: that changes nothing.
func TestEmptyAndAbsentAreTheSame(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	call := &unstructured.Unstructured{}
	call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	call.SetNamespace(s.namespace)
	call.SetName("empty")
	call.Object["spec"] = map[string]any{
		"structured": map[string]any{"binary": "ls", "args": []any{}}, "env": []any{}, "stdin": "", "workingDir": "", "trusted": false,
		"requestedBy": map[string]any{"username": "", "uid": "", "groups": []any{}, "extra": map[string]any{}}, "cancel": false,
	}
	s.create(call)
	typed := &v1alpha1.ToolCall{}
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(call), typed); err != nil {
		t.Fatal(err)
	}
	typed.Spec.Cancel = true
	expectRefused(t, s.admin.Update(t.Context(), typed), "")
	// Of a call whose creator wrote no empty values a change of a label is no change of the spec.
	plain := newCall(s.namespace, "plain")
	s.create(plain)
	if err := s.admin.Get(t.Context(), client.ObjectKeyFromObject(plain), plain); err != nil {
		t.Fatal(err)
	}
	plain.Labels = map[string]string{"team": "a"}
	expectRefused(t, s.admin.Update(t.Context(), plain), "")
	if plain.IsEdited() {
		t.Errorf("after a change of its label its generation is %d", plain.Generation)
	}
}

func asYAML(t *testing.T, object any) string {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
