package retention

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// finishedCall is one that ended at start.
func finishedCall(changes ...func(*v1alpha1.ToolCall)) *v1alpha1.ToolCall {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "uid"},
		Status: v1alpha1.ToolCallStatus{
			Phase: v1alpha1.PhaseSucceeded, Environment: &v1alpha1.ResolvedEnvironment{Name: "env"},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionFinished, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(start)}},
		},
	}
	for _, change := range changes {
		change(call)
	}
	return call
}

func TestAFinishedCallStaysForItsTime(t *testing.T) {
	t.Parallel()
	own := func(seconds int32) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Spec.TTLSecondsAfterFinished = &seconds }
	}
	inSession := func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = &v1alpha1.SessionReference{Name: "s"} }
	for name, tc := range map[string]struct {
		call  *v1alpha1.ToolCall
		env   *int32
		stays time.Duration
	}{
		"the default":                    {finishedCall(), nil, time.Hour},
		"its environment's":              {finishedCall(), ptr.To(int32(100)), 100 * time.Second},
		"its own":                        {finishedCall(own(10)), ptr.To(int32(100)), 10 * time.Second},
		"none":                           {finishedCall(own(0)), ptr.To(int32(100)), 0},
		"of a session":                   {finishedCall(inSession), ptr.To(int32(100)), 5 * time.Minute},
		"of a session, its own":          {finishedCall(inSession, own(10)), nil, 10 * time.Second},
		"of an environment nobody knows": {finishedCall(func(c *v1alpha1.ToolCall) { c.Status.Environment = nil }), ptr.To(int32(100)), time.Hour},
	} {
		scheme := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		env := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "env"}}
		env.Spec.TTLSecondsAfterFinished = tc.env
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(env, tc.call).Build()
		now := clocktesting.NewFakePassiveClock(start)
		r := &Reconciler{Client: api, Objects: apicache.Reader{Reader: api, Live: api}, Clock: now, Schedule: NewSchedule(now, nil)}
		key := client.ObjectKeyFromObject(tc.call)
		r.Keep(t.Context(), tc.call)
		if due := r.Schedule.take(start.Add(tc.stays)); tc.stays > 0 && len(due) != 0 {
			t.Errorf("%s: it is looked at before its time", name)
		}
		is := func(at time.Duration) bool {
			now.SetTime(start.Add(at))
			if _, err := r.Reconcile(t.Context(), request(key)); err != nil {
				t.Fatal(err)
			}
			return api.Get(t.Context(), key, &v1alpha1.ToolCall{}) == nil
		}
		if tc.stays > 0 && !is(tc.stays-time.Second) {
			t.Errorf("%s: it goes before its time", name)
		}
		if is(tc.stays) {
			t.Errorf("%s: it stays", name)
		}
	}
}

// What can't be deleted is tried again; what is gone, or isn't that call any more, stays as it is.
func TestOnlyTheFinishedCallIsDeleted(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	running := finishedCall(func(c *v1alpha1.ToolCall) { c.Status.Phase = v1alpha1.PhaseRunning })
	down := errors.New("down")
	var fail error
	var asked *types.UID
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(running).Build(), interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			asked = options.Preconditions.UID
			return fail
		},
	})
	now := clocktesting.NewFakePassiveClock(start.Add(24 * time.Hour))
	r := &Reconciler{Client: api, Objects: apicache.Reader{Reader: api, Live: api}, Clock: now, Schedule: NewSchedule(now, func(types.NamespacedName) {})}
	if _, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(running))); err != nil || asked != nil {
		t.Errorf("a running call of the name: %v", err)
	}
	var first *v1alpha1.ToolCall
	for i := range keptOfSession + 1 {
		call := endedIn("s", i)
		if r.Schedule.Ended(call); first == nil {
			first = call
		}
	}
	fail = down
	if _, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(first))); !errors.Is(err, down) || asked == nil || *asked != first.UID {
		t.Errorf("a call that is one too many: %v", err)
	}
	if _, is := r.Schedule.surplus(client.ObjectKeyFromObject(first)); !is {
		t.Error("it is forgotten before it is gone")
	}
	fail = nil
	if _, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(first))); err != nil {
		t.Error(err)
	}
	if _, is := r.Schedule.surplus(client.ObjectKeyFromObject(first)); is {
		t.Error("it is gone, and remembered")
	}
}

// auditLog knows what the test says.
type auditLog struct {
	isBehind bool
	has      types.UID
}

func (a *auditLog) IsBehind(string) bool       { return a.isBehind }
func (a *auditLog) HasCall(uid types.UID) bool { return uid == a.has }

// A new leader, for example, hasn't read back its audit log when calls are due.
func TestNoCallIsDeletedBeforeTheAuditLogHasIt(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	call := finishedCall()
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(call).Build()
	now := clocktesting.NewFakePassiveClock(start.Add(24 * time.Hour))
	r := &Reconciler{Client: api, Objects: apicache.Reader{Reader: api, Live: api}, Clock: now, Schedule: NewSchedule(now, func(types.NamespacedName) {})}
	for _, c := range []struct {
		log   *auditLog
		stays bool
	}{{&auditLog{isBehind: true, has: call.UID}, true}, {&auditLog{has: "other"}, true}, {&auditLog{has: call.UID}, false}} {
		r.Audit = c.log
		again, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(call)))
		if err != nil || (again.RequeueAfter > 0) != c.stays {
			t.Errorf("with %+v it is looked at again after %s: %v", c.log, again.RequeueAfter, err)
		}
		if stays := api.Get(t.Context(), client.ObjectKeyFromObject(call), &v1alpha1.ToolCall{}) == nil; stays != c.stays {
			t.Errorf("with %+v it stays: %t", c.log, stays)
		}
	}
}

// The calls of a session that are one too many wait as well, while they are there: the audit log forgets one that somebody has deleted.
func TestACallThatIsOneTooManyWaitsForTheAuditLog(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	first := endedIn("s", 0)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(first).Build()
	now := clocktesting.NewFakePassiveClock(start)
	r := &Reconciler{
		Client: api, Objects: apicache.Reader{Reader: api, Live: api}, Clock: now,
		Schedule: NewSchedule(now, func(types.NamespacedName) {}), Audit: &auditLog{},
	}
	r.Schedule.Ended(first)
	for i := range keptOfSession {
		r.Schedule.Ended(endedIn("s", i+1))
	}
	if again, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(first))); err != nil || again.RequeueAfter == 0 {
		t.Errorf("it is looked at again after %s: %v", again.RequeueAfter, err)
	}
	if err := api.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	again, err := r.Reconcile(t.Context(), request(client.ObjectKeyFromObject(first)))
	if _, is := r.Schedule.surplus(client.ObjectKeyFromObject(first)); err != nil || again.RequeueAfter != 0 || is {
		t.Errorf("it is gone, and looked at again after %s: %v; it is remembered: %t", again.RequeueAfter, err, is)
	}
}

func request(name types.NamespacedName) ctrl.Request { return ctrl.Request{NamespacedName: name} }
