package controllers_test

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/trigger"
)

// manage has a manager look at the namespace's calls until the test ends. Its clock stands still, and runners don't
// wake it: what it does, it does because of a watch.
func (w *world) manage() {
	w.t.Helper()
	w.manageWith(func(mgr ctrl.Manager) error {
		w.use = mgr.GetClient()
		w.rebuild()
		return w.reconciler.SetupWithManager(mgr, trigger.New())
	})
}

// manageWith runs a manager for the namespace until the test ends.
func (w *world) manageWith(setup func(ctrl.Manager) error) {
	w.t.Helper()
	mgr, err := ctrl.NewManager(apiServer, ctrl.Options{
		Scheme: shared.GetScheme(), Logger: logr.Discard(), Cache: apicache.Options([]string{w.namespace}),
		Client:  client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}},
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := apicache.Setup(mgr.GetCache()); err != nil {
		w.t.Fatal(err)
	}
	if err := setup(mgr); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the manager ended: %v", err)
		}
	})
}

func TestTheEndOfASuspensionHasTheHeldCallsLookedAt(t *testing.T) {
	w := newWorld(t)
	env := w.environment("env", asDefault, func(e *v1alpha1.ExecutionEnvironment) { e.Spec.Suspend = true })
	w.manage()
	call := w.call("c")
	eventually(t, func() bool { return whyNotStarted(w.get(call)) == v1alpha1.ReasonEnvironmentSuspended })
	w.suspend(env, false)
	eventually(t, func() bool { return w.hasJob(call) })
}

func TestTheEndOfAPodHasItsCallLookedAt(t *testing.T) {
	w := newWorld(t)
	w.environment("env", asDefault)
	call, pod := w.bound("c")
	w.manage()
	w.podStatus(pod, terminated("Error", ""))
	eventually(t, func() bool { return w.get(call).Status.Phase.Terminal() })
	if s := w.get(call).Status; s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe {
		t.Errorf("ended %s: %s", s.Reason, s.Message)
	}
}

// The Job of the waiting pod isn't the call's own yet, and nothing else tells of the pod's end.
func TestACallThatTookAWaitingPodEndsWhenThatPodDiesAtOnce(t *testing.T) {
	w := newWorld(t)
	env, r, call := w.givenAPod()
	name := w.get(call).Status.Job
	w.disconnect(r)
	w.podStatus(w.podNamed(w.get(call).Status.Pod), func(s *corev1.PodStatus) { terminated("Error", "")(s) })
	w.fill(env)
	w.reconcile(call)
	s := w.get(call).Status
	if s.Reason != v1alpha1.ReasonPodLost || *s.RetrySafe || s.ExitCode != nil {
		t.Errorf("ended %s, safe to retry: %v: %s", s.Reason, *s.RetrySafe, s.Message)
	}
	eventually(t, func() bool { w.fill(env); return !w.hasNamedJob(name) && len(w.waiting(env)) == 1 })
	if problem := w.problem(env); problem != "" {
		t.Errorf("the environment says %q: a pod that had a call is no failure of the pool", problem)
	}
}
