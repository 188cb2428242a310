package toolsession

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/decide"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// readyWith is the status of a session whose runner finds its node and itself like this.
func readyWith(support *rules.Support) *v1alpha1.ToolSessionStatus {
	o := sight{}.observation()
	env := &v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{RuntimeClassName: ptr.To("gvisor")}}
	o.origin = &decide.Origin{Context: decide.Context{Named: env}}
	return o.ready(&v1alpha1.RunnerBinding{}, wire.Hello{Pod: "pod", Support: support}, &batchv1.Job{})
}

func TestASessionSaysWhatItsRunnerFound(t *testing.T) {
	t.Parallel()
	self := &rules.Self{User: 1000, Seccomp: rules.SeccompFilter, UserNamespace: new(true)}
	want := &v1alpha1.SessionIsolation{
		User: 1000, Seccomp: v1alpha1.SeccompFilter, UserNamespace: new(true), RuntimeClass: "gvisor", Network: v1alpha1.HeldNetworkPod, LandlockABI: 7,
	}
	status := readyWith(&rules.Support{LandlockABI: 7, Listener: true, Self: self})
	if diff := cmp.Diff(want, status.Isolation); diff != "" {
		t.Error(diff)
	}
	if s := unplaced(status); s.Isolation != nil {
		t.Errorf("without a pod: %+v", s.Isolation)
	}
}

func TestNothingIsSaidOfASessionThatItsRunnerDidNotFind(t *testing.T) {
	t.Parallel()
	for name, support := range map[string]*rules.Support{
		"a runner that looks at nothing": nil, "an older runner": {LandlockABI: 7},
		"a mode that isn't one": {Self: &rules.Self{Seccomp: "Perfect"}}, "a user that can't be": {Self: &rules.Self{User: 1<<32 - 1}},
	} {
		if s := readyWith(support); s.Isolation != nil || s.Pod != "pod" {
			t.Errorf("%s: %+v", name, s.Isolation)
		}
	}
	for _, support := range []rules.Support{{LandlockABI: -1 << 40, Listener: true}, {Listener: true}, {LandlockABI: 7}} {
		support.Self = &rules.Self{}
		if s := readyWith(&support); s.Isolation == nil || s.Isolation.LandlockABI != 0 {
			t.Errorf("a node that can make no domain: %+v", s.Isolation)
		}
	}
}

// What a session began with is in its status as soon as it is known, and stays.
func TestTheStatusSaysWhatTheSessionBeganWith(t *testing.T) {
	t.Parallel()
	env := v1alpha1.ExecutionEnvironment{Spec: v1alpha1.ExecutionEnvironmentSpec{Env: []v1alpha1.EnvVar{{Name: "A", Value: "a"}}}}
	env.Name = "env"
	o := sight{}.observation()
	o.origin = &decide.Origin{Context: decide.Context{Defaults: []v1alpha1.ExecutionEnvironment{env}}}
	want := &v1alpha1.ResolvedEnvironment{Name: "env", Trusted: true, Env: []v1alpha1.ResolvedEnvVar{{Name: "A", Source: "Default"}}}
	if diff := cmp.Diff(want, o.pending("r", "m").Environment); diff != "" {
		t.Error(diff)
	}
}
