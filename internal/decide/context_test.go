package decide_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/envresolve"
)

func value(name, text string) v1alpha1.EnvVar { return v1alpha1.EnvVar{Name: name, Value: text} }

func TestTheNamedEnvironmentComesBeforeTheDefault(t *testing.T) {
	t.Parallel()
	named := environment("named")
	one, two := []v1alpha1.ExecutionEnvironment{environment("a")}, []v1alpha1.ExecutionEnvironment{environment("b"), environment("a")}
	name := func(env *v1alpha1.ExecutionEnvironment) string {
		if env == nil {
			return ""
		}
		return env.Name
	}
	for label, tc := range map[string]struct {
		context             decide.Context
		effective, default_ string
		duplicate           string
	}{
		"none":                     {},
		"a default one":            {decide.Context{Defaults: one}, "a", "a", ""},
		"a named one":              {decide.Context{Named: &named}, "named", "", ""},
		"both":                     {decide.Context{Named: &named, Defaults: one}, "named", "a", ""},
		"two default ones":         {decide.Context{Defaults: two}, "", "", `ExecutionEnvironments ["a" "b"] are all annotated with ` + v1alpha1.AnnotationDefaultEnvironment + `: "true"; keep it on one of them`},
		"two beside the named one": {decide.Context{Named: &named, Defaults: two}, "named", "", `ExecutionEnvironments ["a" "b"] are all annotated with ` + v1alpha1.AnnotationDefaultEnvironment + `: "true"; keep it on one of them`},
	} {
		c := tc.context
		got := []string{name(c.Effective()), name(c.DefaultEnvironment()), decide.DuplicateDefault(c.Defaults)}
		if diff := cmp.Diff([]string{tc.effective, tc.default_, tc.duplicate}, got); diff != "" {
			t.Errorf("%s: %s", label, diff)
		}
	}
}

// sources names the layers of a plan, the most specific one last.
func sources(plan *envresolve.Plan) []string {
	var list []string
	for _, layer := range plan.Layers {
		list = append(list, string(layer.Source))
	}
	return list
}

func TestEachLayerIsThereOnce(t *testing.T) {
	t.Parallel()
	withDefault := func(s *decide.Snapshot) {
		s.Defaults = []v1alpha1.ExecutionEnvironment{environment("default", value("D", "1"))}
	}
	withSkill := func(s *decide.Snapshot) {
		s.Call.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		s.Skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{value("S", "1")}}}
	}
	withCall := func(s *decide.Snapshot) { s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "C", Value: "1"}} }
	withNamed := func(s *decide.Snapshot) { s.Named.Spec.Env = []v1alpha1.EnvVar{value("N", "1")} }
	unnamed := func(s *decide.Snapshot) {
		s.Named, s.Call.Spec.EnvironmentRef, s.Policies.Defaults = nil, nil, []v1alpha1.ExecutionPolicy{*s.Policies.Named}
	}
	for name, tc := range map[string]struct {
		change []change
		want   []string
	}{
		"no variables":          {nil, nil},
		"all layers":            {both(withDefault, withSkill, withNamed, withCall), []string{"Default", "Skill", "Environment", "Call"}},
		"the default one alone": {both(withDefault, unnamed), []string{"Default"}},
		"the default one is named": {both(func(s *decide.Snapshot) {
			s.Named.Spec.Env = []v1alpha1.EnvVar{value("N", "1")}
			s.Defaults = []v1alpha1.ExecutionEnvironment{*s.Named}
		}), []string{"Environment"}},
	} {
		d := mustDecide(t, snapshot(tc.change...))
		if diff := cmp.Diff(tc.want, sources(&d.Plan)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTrustNeedsAnEnvironmentOfThePlatformOrAnAdmittedWord(t *testing.T) {
	t.Parallel()
	unnamed := func(s *decide.Snapshot) {
		s.Named.Spec.PolicyRef = nil
		s.Defaults = []v1alpha1.ExecutionEnvironment{*s.Named}
		s.Named, s.Call.Spec.EnvironmentRef = nil, nil
	}
	says := func(s *decide.Snapshot) { s.Call.Spec.Trusted = true }
	ownDir := func(s *decide.Snapshot) { s.Call.Spec.WorkingDir = "/tmp" }
	ownVariable := func(s *decide.Snapshot) { s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: "b"}} }
	for name, tc := range map[string]struct {
		change  []change
		trusted bool
	}{
		"nothing of its own":                            {both(unnamed), true},
		"nothing of its own, and nobody vouches":        {both(unnamed, unvouched("x")), true},
		"its own directory":                             {both(unnamed, ownDir), false},
		"its own variable":                              {both(unnamed, ownVariable), false},
		"an environment that it names":                  {nil, false},
		"a word that was admitted":                      {both(says, ownVariable), true},
		"a word that nobody vouches for":                {both(says, ownVariable, unvouched("x")), false},
		"a requester that is vouched for, without word": {both(ownVariable), false},
	} {
		s := snapshot(tc.change...)
		s.Policies.Defaults = []v1alpha1.ExecutionPolicy{*s.Policies.Named}
		if d := mustDecide(t, s); d.Plan.Trusted != tc.trusted {
			t.Errorf("%s: trusted: %t", name, d.Plan.Trusted)
		}
	}
}

func TestAReferenceIsInThePodOnlyIfItsValueCanReachTheProcess(t *testing.T) {
	t.Parallel()
	trusted := func(s *decide.Snapshot) { s.Call.Spec.Trusted = true }
	env := func(vars ...v1alpha1.EnvVar) change {
		return func(s *decide.Snapshot) { s.Named.Spec.Env = vars }
	}
	for name, tc := range map[string]struct {
		change []change
		want   []string
	}{
		"a literal":                            {both(env(value("A", "b"))), nil},
		"a reference":                          {both(env(secret("A", "k"))), []string{"k"}},
		"two of one key":                       {both(env(secret("A", "k"), secret("B", "k"))), []string{"k"}},
		"a blocked one":                        {both(env(secret("AWS_KEY", "k"))), nil},
		"a blocked one in a trusted call":      {both(env(secret("AWS_KEY", "k")), trusted), []string{"k"}},
		"a blocked one under another name too": {both(env(secret("AWS_KEY", "k"), secret("KEY", "k"))), []string{"k"}},
		"one that the call sets":               {both(env(secret("A", "k")), func(s *decide.Snapshot) { s.Call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A"}} }), nil},
		"one of the default that the other sets": {both(env(value("A", "b")), func(s *decide.Snapshot) {
			s.Defaults = []v1alpha1.ExecutionEnvironment{environment("d", secret("A", "k"))}
		}), nil},
		"one blocked by the policy alone": {
			both(env(secret("A_KEY", "a"), secret("AWS_KEY", "b")), func(s *decide.Snapshot) { s.Policies.Named.Spec.EnvBlocklist = []string{"A_"} }), []string{"b"},
		},
	} {
		d := mustDecide(t, snapshot(tc.change...))
		var keys []string
		for _, ref := range d.Refs {
			keys = append(keys, ref.ValueFrom.SecretKeyRef.Key)
		}
		slices.Sort(keys)
		if diff := cmp.Diff(tc.want, keys); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestEachKindOfReferenceKeepsWhatItRefersTo(t *testing.T) {
	t.Parallel()
	in := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	from := map[string]*v1alpha1.EnvVarSource{
		"A": {SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: in("s"), Key: "k"}},
		"B": {SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: in("s"), Key: "k", Optional: ptr.To(true)}},
		"C": {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: in("s"), Key: "k"}},
		"D": {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: in("s"), Key: "k", Optional: ptr.To(true)}},
		"E": {FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}
	d := mustDecide(t, snapshot(func(s *decide.Snapshot) {
		for name, source := range from {
			s.Named.Spec.Env = append(s.Named.Spec.Env, v1alpha1.EnvVar{Name: name, ValueFrom: source})
		}
	}))
	byRef := map[string]corev1.EnvVar{}
	for _, ref := range d.Refs {
		byRef[ref.Name] = ref
	}
	if len(byRef) != len(from) {
		t.Fatalf("%d references for %d variables: %v", len(byRef), len(from), d.Refs)
	}
	for _, v := range d.Plan.Layers[0].Vars {
		got, want := byRef[v.Ref].ValueFrom, from[v.Name]
		if diff := cmp.Diff(&corev1.EnvVarSource{SecretKeyRef: want.SecretKeyRef, ConfigMapKeyRef: want.ConfigMapKeyRef, FieldRef: want.FieldRef}, got); diff != "" {
			t.Errorf("%s: %s", v.Name, diff)
		}
		if v.Optional != (v.Name == "B" || v.Name == "D") {
			t.Errorf("%s is optional: %t", v.Name, v.Optional)
		}
	}
}

// keysOf are the keys of a Secret behind variables.
func keysOf(refs []corev1.EnvVar) []string {
	var keys []string
	for _, ref := range refs {
		keys = append(keys, ref.ValueFrom.SecretKeyRef.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestAPoolsPodsHoldWhatAnUntrustedCallMayGet(t *testing.T) {
	t.Parallel()
	env := environment("env", secret("A", "a"), secret("AWS_KEY", "blocked"), secret("SHARED", "env"), value("B", "x"))
	fallback := environment("fallback", secret("D", "d"), secret("SHARED", "hidden"), secret("AWS_OTHER", "blocked too"))
	blocklist := []string{"AWS_"}
	for name, tc := range map[string]struct {
		fallback *v1alpha1.ExecutionEnvironment
		want     []string
	}{
		"with a default environment":     {&fallback, []string{"a", "d", "env"}},
		"without one":                    {nil, []string{"a", "env"}},
		"the default environment itself": {&env, []string{"a", "env"}},
	} {
		if diff := cmp.Diff(tc.want, keysOf(decide.PoolRefs(&env, tc.fallback, blocklist))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A waiting pod may be given to anybody's call: nothing that the blocklist keeps from an untrusted one may be in it,
// however the environments are written. And it has all that such a call of the environment needs.
func TestAPoolNeverHoldsABlockedReference(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		env, fallback := environment("env", randomVars(r, "e")...), environment("fallback", randomVars(r, "f")...)
		blocklist := []string{"AWS_", "X"}[:r.IntN(3)]
		refs := decide.PoolRefs(&env, &fallback, blocklist)
		may := map[string]bool{}
		for _, v := range append(env.Spec.Env, fallback.Spec.Env...) {
			blocked := slices.ContainsFunc(blocklist, func(prefix string) bool { return strings.HasPrefix(v.Name, prefix) })
			if v.ValueFrom != nil && !blocked {
				may[v.ValueFrom.SecretKeyRef.Key] = true
			}
		}
		for _, key := range keysOf(refs) {
			if !may[key] {
				t.Fatalf("seed %d: key %s is in the pool's pods, and only blocked variables have it: %+v, %+v", seed, key, env.Spec.Env, fallback.Spec.Env)
			}
		}
		s := snapshot(func(s *decide.Snapshot) {
			s.Named, s.Defaults = &env, []v1alpha1.ExecutionEnvironment{fallback}
			s.Policies = decide.Policies{Defaults: []v1alpha1.ExecutionPolicy{*policy("p", open())}}
			s.Policies.Defaults[0].Spec.EnvBlocklist = append([]string{}, blocklist...)
		})
		if d := mustDecide(t, s); !cmp.Equal(keysOf(d.Refs), keysOf(refs)) {
			t.Fatalf("seed %d: a call needs %v, a pool's pod has %v", seed, keysOf(d.Refs), keysOf(refs))
		}
	}
}

func randomVars(r *rand.Rand, prefix string) []v1alpha1.EnvVar {
	names := []string{"A", "AWS_KEY", "AWS_", "X", "XA", "B", "aws_key"}
	var vars []v1alpha1.EnvVar
	for i := range r.IntN(6) {
		v := value(names[r.IntN(len(names))], "v")
		if r.IntN(3) > 0 {
			v = secret(v.Name, fmt.Sprint(prefix, i%3))
			v.ValueFrom.SecretKeyRef.Optional = ptr.To(r.IntN(2) == 0)
		}
		vars = append(vars, v)
	}
	return vars
}
