package host

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/jobspec"
)

var runtime = jobspec.Runtime{RunnerImage: "runner:1", Endpoints: []string{"pod:1", "service:1"}, CA: "ca"}

// placing is what one call is placed with.
type placing struct {
	env, fallback *v1alpha1.ExecutionEnvironment
	policy        *v1alpha1.ExecutionPolicy
	skill         *v1alpha1.Skill
	call          *v1alpha1.ToolCall
}

func secret(name, key string) v1alpha1.EnvVar {
	return v1alpha1.EnvVar{Name: name, ValueFrom: &v1alpha1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: key,
	}}}
}

// newPlacing is a call of an environment that keeps pods waiting.
func newPlacing(changes ...func(*placing)) *placing {
	p := &placing{
		env: &v1alpha1.ExecutionEnvironment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env", UID: "env-uid"},
			Spec: v1alpha1.ExecutionEnvironmentSpec{
				Image: "image:1", WarmPool: &v1alpha1.WarmPool{Size: 2},
				Env: []v1alpha1.EnvVar{secret("A", "a"), secret("AWS_KEY", "blocked")},
			},
		},
		policy: &v1alpha1.ExecutionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy-uid", Generation: 1},
			Spec:       v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Shell: &v1alpha1.ShellPolicy{Enabled: ptr.To(true)}},
		},
		call: &v1alpha1.ToolCall{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "call-uid"},
			Spec: v1alpha1.ToolCallSpec{
				Shell: &v1alpha1.ShellAction{Command: "make"}, EnvironmentRef: &v1alpha1.LocalReference{Name: "env"},
			},
		},
	}
	for _, c := range changes {
		c(p)
	}
	return p
}

func (p *placing) decide(t *testing.T) *decide.Decision {
	t.Helper()
	s := &decide.Snapshot{
		Call: p.call, Context: decide.Context{Named: p.env, Skill: p.skill},
		Policies: decide.Policies{Defaults: []v1alpha1.ExecutionPolicy{*p.policy}}, Requester: decide.Requester{Vouched: true},
	}
	if p.fallback != nil {
		s.Defaults = []v1alpha1.ExecutionEnvironment{*p.fallback}
	}
	d, err := decide.Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// template is what the pool's controller offers runners by.
func (p *placing) template(t *testing.T) string {
	t.Helper()
	compiled, err := decide.CompilePolicy(p.policy)
	if err != nil {
		t.Fatal(err)
	}
	_, hash, err := PoolTemplate(p.env, p.fallback, p.policy, compiled.EnvBlocklist(), runtime)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// need is what the call needs of a waiting host.
func (p *placing) need(t *testing.T) Need {
	t.Helper()
	d := p.decide(t)
	return Need{Environment: d.In, Default: d.Default, Policy: d.Policy, Blocklist: d.Plan.Blocklist, Refs: d.Refs, Runtime: runtime}
}

// claim claims a waiting runner for the call.
func (p *placing) claim(t *testing.T, registry *Registry) *dispatch.Runner {
	t.Helper()
	runner, err := registry.ClaimFitting(p.need(t), aCall(p.call.Name), string(p.call.UID))
	if err != nil {
		t.Fatal(err)
	}
	return runner
}

func TestACallGetsTheSameWaitingRunnerAgain(t *testing.T) {
	t.Parallel()
	o := startOperator(t)
	registry := NewRegistry(o.hub)
	p := newPlacing()
	runner, _ := o.connectRunner(t, "a")
	registry.Offer("a-uid", p.template(t))
	for range 2 {
		if got := p.claim(t, registry); got != runner {
			t.Errorf("got %v", got)
		}
	}
	if got := newPlacing(func(p *placing) { p.call.UID = "other" }).claim(t, registry); got != nil {
		t.Errorf("another call got %v", got)
	}
}

func TestAPoolHasNothingForACallThatItsPodsAreNotFor(t *testing.T) {
	t.Parallel()
	offered := newPlacing()
	for name, change := range map[string]func(*placing){
		"an environment without a pool":              func(p *placing) { p.env.Spec.WarmPool = nil },
		"an environment with an empty pool":          func(p *placing) { p.env.Spec.WarmPool.Size = 0 },
		"an environment on its way out":              func(p *placing) { p.env.DeletionTimestamp = ptr.To(metav1.Now()) },
		"a trusted call that gets what others don't": func(p *placing) { p.call.Spec.Trusted = true },
		"a skill with a reference of its own": func(p *placing) {
			p.skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{secret("S", "skill")}}}
			p.call.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		},
		"another image":          func(p *placing) { p.env.Spec.Image = "image:2" },
		"another environment":    func(p *placing) { p.env.UID = "another" },
		"a change of the policy": func(p *placing) { p.policy.Generation = 2 },
		"another policy":         func(p *placing) { p.policy.UID = "another" },
		"a new default one": func(p *placing) {
			p.fallback = &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d-uid"}}
		},
		"another queue of its own": func(p *placing) { p.env.Spec.Queues = []string{"slow"} },
	} {
		o := startOperator(t)
		registry := NewRegistry(o.hub)
		o.connectRunner(t, "a")
		registry.Offer("a-uid", offered.template(t))
		p := newPlacing(change)
		if got := p.claim(t, registry); got != nil {
			t.Errorf("%s: %+v", name, got)
		}
		if registry.claimedBy(string(p.call.UID)) != nil || registry.Waiting(offered.template(t)) != 1 {
			t.Errorf("%s: the runner was claimed all the same", name)
		}
	}
}

func TestAPoolServesACallThatNeedsNoMoreThanOthers(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*placing){
		"variables of its own":            func(p *placing) { p.call.Spec.Env = []v1alpha1.CallEnvVar{{Name: "A", Value: "x"}} },
		"another limit of the pool":       func(p *placing) { p.env.Spec.WarmPool.Size = 7 },
		"another number of calls at once": func(p *placing) { p.env.Spec.MaxConcurrentCalls = ptr.To(int32(3)) },
		"a queue that isn't offered":      func(p *placing) { p.call.Labels = map[string]string{jobspec.LabelQueue: "fast"} },
		"a skill of literals": func(p *placing) {
			p.skill = &v1alpha1.Skill{Spec: v1alpha1.SkillSpec{Env: []v1alpha1.EnvVar{{Name: "S", Value: "1"}}}}
			p.call.Spec.SkillRef = &v1alpha1.LocalReference{Name: "skill"}
		},
		"an environment that is also a default": func(p *placing) { p.fallback = p.env },
	} {
		o := startOperator(t)
		registry := NewRegistry(o.hub)
		runner, _ := o.connectRunner(t, "a")
		registry.Offer("a-uid", newPlacing().template(t))
		p := newPlacing(change)
		if got := p.claim(t, registry); got != runner {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAPoolIsAsLargeAsItsEnvironmentSaysUntilThatGoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*placing)
		want   int32
	}{
		"with a pool":    {func(*placing) {}, 2},
		"without one":    {func(p *placing) { p.env.Spec.WarmPool = nil }, 0},
		"on its way out": {func(p *placing) { p.env.DeletionTimestamp = ptr.To(metav1.NewTime(time.Now())) }, 0},
	} {
		if got := PoolSize(newPlacing(tc.change).env); got != tc.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

func TestAPoolsPodsHoldNoBlockedReference(t *testing.T) {
	t.Parallel()
	p := newPlacing()
	template, _, err := PoolTemplate(p.env, nil, p.policy, []string{"AWS_"}, runtime)
	if err != nil {
		t.Fatal(err)
	}
	if len(template.Refs) != 1 || template.Refs[0].ValueFrom.SecretKeyRef.Key != "a" {
		t.Errorf("the pods have %v", template.Refs)
	}
}

func TestATemplateIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	first := newPlacing(func(p *placing) {
		p.fallback = &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "d-uid"}}
	})
	for range 20 {
		if once, again := first.template(t), first.template(t); once != again {
			t.Fatal("two hashes of one template")
		}
	}
}
