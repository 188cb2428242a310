package approval_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
	"toolcall.dev/operator/internal/decide"
)

var asked = time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC)

// subject is all that is approved.
type subject struct {
	Call        v1alpha1.ToolCallSpec
	Decision    decide.Decision
	Environment v1alpha1.ExecutionEnvironmentSpec
	Session     v1alpha1.ToolSessionSpec
	Skill       v1alpha1.SkillSpec
	Refs        []corev1.EnvVar
	// Names are those of the objects.
	Names struct {
		Namespace, Call, CallUID, Environment, EnvironmentUID, Session, SessionUID, Skill, SkillUID, Policy, PolicyUID string
		PolicyGeneration                                                                                               int64
	}
}

// excluded are the fields that an approval doesn't bind, with the reason.
var excluded = map[string]string{
	"Call.Cancel":                            "it ends the call, and starts nothing",
	"Call.TTLSecondsAfterFinished":           "how long the object stays changes nothing of what runs",
	"Decision.StartTimeoutSeconds":           "how long the pod may take to start changes nothing of what runs",
	"Decision.CreatedMicroseconds":           "a time, which each decision has another of",
	"Decision.AcceptedMicroseconds":          "a time, which each decision has another of",
	"Decision.AssignedMicroseconds":          "a time, which each decision has another of",
	"Decision.Plan.FileDir":                  "the runner sets it",
	"Decision.Bounds.Rules.Beside":           "the runner sets it",
	"Environment.Suspend":                    "it says when, not what",
	"Environment.MaxConcurrentCalls":         "it says when, not what",
	"Environment.WarmPool.Size":              "a waiting pod is made from the same environment",
	"Environment.Queues[0]":                  "it says when, not what",
	"Environment.Sessions.Max":               "it bounds how many sessions there are",
	"Environment.Sessions.MaxPerCaller":      "it bounds how many sessions there are",
	"Environment.StartTimeoutSeconds":        "how long the pod may take to start changes nothing of what runs",
	"Environment.TTLSecondsAfterFinished":    "how long objects stay changes nothing of what runs",
	"Environment.JobTTLSecondsAfterFinished": "how long objects stay changes nothing of what runs",
	"Session.IdleTimeoutSeconds":             "the session's life, not the call",
	"Session.MaxLifetimeSeconds":             "the session's life, not the call",
	"Session.MaxConcurrentCalls":             "it says when, not what",
	"Session.MaxCalls":                       "the session's life, not the call",
	"Session.Suspend":                        "it says when, not what",
	"Session.End":                            "the session's life, not the call",
	"Session.TTLSecondsAfterEnded":           "how long the object stays changes nothing of what runs",
	"Skill.Description":                      "it is for people: its variables are bound",
}

// elsewhere are the fields of a decision that are objects: what is bound of them has a field of its own here.
var elsewhere = map[string]string{
	"Decision.In": "Environment", "Decision.Policy": "its name, uid and generation", "Decision.Refs": "Refs",
	"Decision.Default": "its variables are in the plan",
}

// actions leave one action each.
var actions = map[string]func(*v1alpha1.ToolCallSpec){
	"structured": func(s *v1alpha1.ToolCallSpec) { s.Shell, s.Code, s.Tool, s.File = nil, nil, nil, nil },
	"shell":      func(s *v1alpha1.ToolCallSpec) { s.Structured, s.Code, s.Tool, s.File = nil, nil, nil, nil },
	"code":       func(s *v1alpha1.ToolCallSpec) { s.Structured, s.Shell, s.Tool, s.File = nil, nil, nil, nil },
	"tool": func(s *v1alpha1.ToolCallSpec) {
		s.Structured, s.Shell, s.Code, s.File = nil, nil, nil, nil
		s.Tool.Name = "bash"
	},
	"file": func(s *v1alpha1.ToolCallSpec) {
		s.Structured, s.Shell, s.Code, s.Tool = nil, nil, nil, nil
		s.File.Operation, s.File.ContentBase64, s.Stdin = v1alpha1.FileWrite, nil, ""
	},
}

func newSubject(action string) *subject {
	s := &subject{}
	fill(reflect.ValueOf(s).Elem(), "")
	actions[action](&s.Call)
	return s
}

// digest is that of the subject; empty for what can't be mapped, and so never runs.
func (s *subject) digest(t *testing.T) string {
	t.Helper()
	n := s.Names
	meta := func(name, uid string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: n.Namespace, Name: name, UID: types.UID(uid)}
	}
	d := s.Decision
	d.In = &v1alpha1.ExecutionEnvironment{ObjectMeta: meta(n.Environment, n.EnvironmentUID), Spec: s.Environment}
	d.Policy = &v1alpha1.ExecutionPolicy{ObjectMeta: metav1.ObjectMeta{Name: n.Policy, UID: types.UID(n.PolicyUID), Generation: n.PolicyGeneration}}
	d.Refs = s.Refs
	snapshot := &decide.Snapshot{Call: &v1alpha1.ToolCall{ObjectMeta: meta(n.Call, n.CallUID), Spec: s.Call}}
	snapshot.Session.Object = &v1alpha1.ToolSession{ObjectMeta: meta(n.Session, n.SessionUID), Spec: s.Session}
	snapshot.Session.Origin = &decide.Origin{Context: decide.Context{Skill: &v1alpha1.Skill{ObjectMeta: meta(n.Skill, n.SkillUID), Spec: s.Skill}}}
	summary, digest, err := approval.Summary(snapshot, &d, asked)
	if err != nil {
		t.Log(err)
		return ""
	}
	stored, _ := json.Marshal(summary)
	if len(stored)-2 > v1alpha1.MaxApprovalSummaryBytes {
		t.Errorf("the summary takes %d bytes", len(stored))
	}
	if digest != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(summary))) {
		t.Error("the digest isn't that of the summary")
	}
	return digest
}

// Every field of what is approved is bound, or excluded by name: also one that is added later.
func TestEveryFieldIsBound(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for path := range excluded {
		left[path] = true
	}
	for action := range actions {
		base := newSubject(action).digest(t)
		if base == "" {
			t.Fatalf("%s: the action can't be mapped", action)
		}
		if again := newSubject(action).digest(t); again != base {
			t.Fatalf("%s: the same has the digests %s and %s", action, base, again)
		}
		var paths []string
		walk(reflect.ValueOf(newSubject(action)).Elem(), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
		for i, path := range paths {
			if action != "shell" && !strings.HasPrefix(path, "Call.") {
				// All but the call is the same for each action.
				continue
			}
			s, at, n := newSubject(action), "", 0
			walk(reflect.ValueOf(s).Elem(), "", func(path string, leaf reflect.Value) {
				if n == i {
					at = path
					change(t, path, leaf)
				}
				n++
			})
			isBound := s.digest(t) != base
			if _, isExcluded := excluded[at]; isExcluded == isBound {
				t.Errorf("%s: %s is bound: %t, excluded: %t", action, at, isBound, isExcluded)
			}
			delete(left, at)
		}
	}
	for path := range left {
		t.Errorf("there is no field %s: take it from the list", path)
	}
}

// leaf says that a value is changed as a whole.
func isLeaf(v reflect.Value) bool {
	switch v.Interface().(type) {
	case resource.Quantity, metav1.Time, metav1.MicroTime, runtime.RawExtension, netip.Addr, netip.Prefix, intstr.IntOrString, metav1.FieldsV1:
		return true
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map:
		return false
	case reflect.Slice:
		return v.Type().Elem().Kind() == reflect.Uint8
	default:
		return true
	}
}

// fill gives every field a value.
func fill(v reflect.Value, path string) {
	if _, is := elsewhere[path]; is {
		return
	}
	if isLeaf(v) {
		set(v, 1)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path+"[0]")
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, path+"[key]")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	default:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i), strings.TrimPrefix(path+"."+field.Name, "."))
			}
		}
	}
}

// walk visits everything that has a value, in the same order each time.
func walk(v reflect.Value, path string, visit func(string, reflect.Value)) {
	if _, is := elsewhere[path]; is {
		return
	}
	if isLeaf(v) {
		visit(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			walk(v.Elem(), path, visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			walk(value, path+"[key]", visit)
			v.SetMapIndex(key, value)
		}
	default:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				walk(v.Field(i), strings.TrimPrefix(path+"."+field.Name, "."), visit)
			}
		}
	}
}

func change(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	before := fmt.Sprintf("%#v", v.Interface())
	set(v, 2)
	if fmt.Sprintf("%#v", v.Interface()) == before {
		t.Fatalf("%s: no other value of the type %s is known here", path, v.Type())
	}
}

// set gives a leaf one of two values.
func set(v reflect.Value, which int) {
	var value any
	switch v.Interface().(type) {
	case resource.Quantity:
		value = *resource.NewQuantity(int64(which), resource.DecimalSI)
	case metav1.Time:
		value = metav1.NewTime(asked.Add(time.Duration(which) * time.Hour))
	case metav1.MicroTime:
		value = metav1.NewMicroTime(asked.Add(time.Duration(which) * time.Hour))
	case runtime.RawExtension:
		value = runtime.RawExtension{Raw: fmt.Appendf(nil, `{"command":"echo %d"}`, which)}
	case metav1.FieldsV1:
		value = *metav1.NewFieldsV1(fmt.Sprintf(`{"f":%d}`, which))
	case netip.Addr:
		value = netip.AddrFrom4([4]byte{192, 0, 2, byte(which)})
	case netip.Prefix:
		value = netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(which), 0}), 24)
	case intstr.IntOrString:
		value = intstr.FromInt(which)
	default:
		setBasic(v, which)
		return
	}
	v.Set(reflect.ValueOf(value))
}

func setBasic(v reflect.Value, which int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("value", which))
	case reflect.Bool:
		v.SetBool(which == 2)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(which))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(which))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(which))
	case reflect.Slice:
		v.SetBytes(fmt.Append(nil, "bytes", which))
	}
}

func TestValuesAndInputAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "a-value-that-nobody-shows"
	s := newSubject("shell")
	s.Call.Stdin, s.Call.Env[0].Value, s.Session.Env[0].Value, s.Skill.Env[0].Value, s.Environment.Env[0].Value = secret, secret, secret, secret, secret
	s.Decision.Plan.Layers[0].Vars[0].Value, s.Decision.SessionEnv[0].Value = secret, secret
	snapshot := &decide.Snapshot{Call: &v1alpha1.ToolCall{Spec: s.Call}}
	snapshot.Session.Object = &v1alpha1.ToolSession{Spec: s.Session}
	snapshot.Skill = &v1alpha1.Skill{Spec: s.Skill}
	s.Decision.In = &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Image: "image", Env: s.Environment.Env}}
	summary, _, err := approval.Summary(snapshot, &s.Decision, asked)
	if err != nil || strings.Contains(summary, secret) {
		t.Errorf("%v: %s", err, summary)
	}
	if s.Call.Stdin != secret || s.Decision.Plan.Layers[0].Vars[0].Value != secret || s.Session.Env[0].Value != secret {
		t.Error("what the summary was made from was changed")
	}
}

// The largest call has a summary that fits, and every byte of it counts.
func TestALargeActionIsBoundByItsHash(t *testing.T) {
	t.Parallel()
	digests := map[string]bool{}
	for _, last := range []string{"a", "b"} {
		s := newSubject("code")
		s.Call.Code.Source = strings.Repeat("<", 500_000) + last
		digests[s.digest(t)] = true
		s = newSubject("structured")
		s.Call.Structured.Args = append(make([]string, 1000), strings.Repeat("\x01", 900), last)
		digests[s.digest(t)] = true
	}
	if len(digests) != 4 {
		t.Errorf("4 calls have %d digests", len(digests))
	}
}

// What a caller writes can't look like something that was left out for its length.
func TestNoActionLooksLikeAnother(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2000)
	a, b := newSubject("tool"), newSubject("tool")
	a.Call.Tool.Arguments.Raw = fmt.Appendf(nil, `{"command":"echo","note":%q}`, long)
	b.Call.Tool.Arguments.Raw = fmt.Appendf(nil, `{"command":"echo","note":{"bytes":2000,"sha256":"%x"}}`, sha256.Sum256([]byte(long)))
	if a.digest(t) == b.digest(t) {
		t.Error("two calls have the same digest")
	}
}

// The largest summary says it too: its large parts stand as their hashes before.
func TestASummarySaysWhatItDoesNotBind(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"short": {"build.sh"}, "large": append(make([]string, 10_000), "build.sh")} {
		s := newSubject("structured")
		s.Call.Structured = &v1alpha1.StructuredAction{Binary: "bash", Args: args}
		s.Decision.In = &v1alpha1.ExecutionEnvironment{}
		summary, _, err := approval.Summary(&decide.Snapshot{Call: &v1alpha1.ToolCall{Spec: s.Call}}, &s.Decision, asked)
		if err != nil || !strings.Contains(summary, `"notBound":"the content of files that the action reads or runs"`) {
			t.Errorf("%s: %v: %s", name, err, summary)
		}
	}
}

func TestEachRequestHasItsOwnDigest(t *testing.T) {
	t.Parallel()
	s := newSubject("shell")
	snapshot := &decide.Snapshot{Call: &v1alpha1.ToolCall{Spec: s.Call}}
	_, first, _ := approval.Summary(snapshot, &s.Decision, asked)
	_, same, _ := approval.Summary(snapshot, &s.Decision, asked.In(time.FixedZone("", 3600)))
	_, next, _ := approval.Summary(snapshot, &s.Decision, asked.Add(time.Microsecond))
	if first != same || first == next {
		t.Errorf("the digests are %s, %s and %s", first, same, next)
	}
}
