package toolcall_test

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

func TestTheRightToUseAToolDecides(t *testing.T) {
	w := fixture.NewWorld(t)
	w.Environment("env", func(e *v1alpha1.ExecutionEnvironment) { fixture.AsDefault(e); e.Spec.PolicyRef = nil })
	w.WithAdmission()
	w.Grant(fixture.Group("system:authenticated"), "toolcalls", nil, "create")
	w.Grant(fixture.User("named"), "tools", []string{"ls"}, "use")
	w.Grant(fixture.Group("listers"), "tools", []string{"ls"}, "use")
	w.Grant(fixture.User("other"), "tools", []string{"cat"}, "use")
	// The operator believes stamps only on calls that are younger than the policies.
	time.Sleep(3 * time.Second)
	for who, tc := range map[string]struct {
		groups  []string
		allowed bool
	}{
		"named": {nil, true}, "grouped": {[]string{"listers"}, true}, "other": {nil, false}, "nobody": {nil, false},
	} {
		t.Run(who, func(t *testing.T) {
			call := fixture.LsCall(w.Namespace, who)
			if err := w.As(who, tc.groups...).Create(context.Background(), call); err != nil {
				t.Fatal(err)
			}
			fixture.Eventually(t, func() bool { return w.Client.Get(context.Background(), client.ObjectKeyFromObject(call), call) == nil })
			w.Accept(call)
			s := w.Get(call).Status
			if allowed := s.Phase == v1alpha1.PhasePending; allowed != tc.allowed {
				t.Errorf("ended %s/%s: %s", s.Phase, s.Reason, s.Message)
			}
			if !tc.allowed && s.Reason != v1alpha1.ReasonAgentNotAllowed {
				t.Errorf("the reason is %s", s.Reason)
			}
		})
	}
}
