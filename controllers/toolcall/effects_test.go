package toolcall

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/controllers/retention"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/host"
	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/queue"
	"toolcall.dev/operator/internal/trigger"
)

// cluster is an API that remembers what was asked of it, in order, and the operator's memory beside it.
type cluster struct {
	*Reconciler
	op *operator
	// did has what was done, by the name of the effect.
	did []string
	// fail is the answer to the request with that effect.
	fail map[string]error
	// watch is called before each request.
	watch    func(effect string)
	recorder *events.FakeRecorder
	// woken are the calls whose share of the creations is free.
	woken []string
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{op: startOperator(t), fail: map[string]error{}, watch: func(string) {}, recorder: events.NewFakeRecorder(100)}
	store := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.ToolCall{}).
		WithIndex(&batchv1.Job{}, apicache.IndexJobCall, ownerUID).WithIndex(&corev1.Pod{}, apicache.IndexPodOwner, ownerUID).Build()
	api := interceptor.NewClient(store, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return c.do(map[bool]string{true: "create", false: "credential"}[isJob(o)], func() error { return api.Create(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, api client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.do("status", func() error { return api.SubResource(name).Patch(ctx, o, p) })
		},
		Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return c.do("adopt", func() error { return api.Patch(ctx, o, p) })
		},
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return c.do("remove", func() error { return api.Delete(ctx, o) })
		},
	})
	pools := trigger.New("test")
	t.Cleanup(pools.Queue("", nil).ShutDown)
	c.Reconciler = NewReconciler(Options{
		Client: api, Objects: apicache.Reader{Reader: cacheOf(api), Live: api}, Clock: clocktesting.NewFakePassiveClock(start.Add(time.Second)),
		Events: c.recorder, Identity: c.op.identity, Hub: c.op.hub, Hosts: host.NewRegistry(c.op.hub),
		Queue:        queue.New(queue.PendingOptions{MaxCalls: 1}, func(types.NamespacedName) {}),
		Budgets:      queue.NewLedger(time.Now, func(queue.Resource, types.NamespacedName) {}),
		SessionQueue: queue.NewSessionQueue(func(types.NamespacedName) {}), Earlier: &host.EarlierCalls{},
		Pools: pools, Concurrent: 4,
		Wake: func(call types.NamespacedName) { c.woken = append(c.woken, call.Name) },
	})
	c.Retention = &retention.Reconciler{Client: api, Objects: c.Objects, Clock: c.Clock, Schedule: retention.NewSchedule(c.Clock, nil)}
	return c
}

// cacheOf shows Jobs as the operator's cache has them.
func cacheOf(api client.WithWatch) client.Reader {
	return interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := api.Get(ctx, key, o, opts...)
			if job, ok := o.(*batchv1.Job); ok && err == nil {
				jobspec.SlimCached(job)
			}
			return err
		},
	})
}

func ownerUID(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// jobFor is the Job that a cold start makes for a call.
func jobFor(t *testing.T, c *cluster, o *observation) *batchv1.Job {
	t.Helper()
	job, err := jobspec.Build(jobspec.Input{Call: o.call, Decision: o.decision, Sealer: c.op.identity})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func isJob(o client.Object) bool {
	_, ok := o.(*batchv1.Job)
	return ok
}

func (c *cluster) do(effect string, request func() error) error {
	c.watch(effect)
	c.did = append(c.did, effect)
	if err := c.fail[effect]; err != nil {
		return err
	}
	return request()
}

// stored is a call that the API has.
func stored(changes ...change) *observation {
	o := observed(changes...)
	o.call.ResourceVersion = "999"
	return o
}

// everything are effects of every kind at once.
func everything(o *observation, c *cluster, t *testing.T) effects {
	t.Helper()
	session, _ := c.op.connect(t, "idle", "")
	pool := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool-uid", Annotations: map[string]string{jobspec.AnnotationPool: "env"}}}
	old := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "old", UID: "old-uid"}}
	if err := errors.Join(c.Client.Create(context.Background(), pool), c.Client.Create(context.Background(), old)); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	c.did = nil
	return effects{
		create: job, credential: job, decided: o, status: o.fail("Why", "because"), adopt: pool,
		messages: []message{{to: session, assign: &wire.Assignment{CallUID: "call-uid", CallName: "call"}}},
		remove:   []*batchv1.Job{old}, keep: true, wake: time.Minute,
	}
}

// What has to be there before the status says so, the status, and only then what follows from it: in the order of the
// fields, which documents it.
func TestEffectsAreCarriedOutInTheOrderOfTheirFields(t *testing.T) {
	t.Parallel()
	o := stored(decided)
	c := newCluster(t, o.call)
	e := everything(o, c, t)
	session := e.messages[0].to
	told := false
	c.watch = func(string) {
		if !told && !session.IsWaiting() {
			told = true
			c.did = append(c.did, "messages")
		}
	}
	got, err := c.apply(context.Background(), o, e)
	if err != nil || got != (ctrl.Result{RequeueAfter: time.Minute}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	want := []string{"create", "credential", "status", "adopt", "messages", "remove"}
	if diff := cmp.Diff(want, c.did); diff != "" {
		t.Error(diff)
	}
	var fields []string
	for i := range reflect.TypeFor[effects]().NumField() {
		if name := reflect.TypeFor[effects]().Field(i).Name; slices.Contains(want, name) {
			fields = append(fields, name)
		}
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("the fields are in another order: %s", diff)
	}
}

// When a write fails, nothing follows that depends on it: without the status, no runner is told and nothing is deleted.
func TestNothingFollowsFromAWriteThatFailed(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	conflict := apierrors.NewConflict(batchv1.Resource("jobs"), "x", nil)
	for _, tc := range []struct {
		effect string
		err    error
		done   []string
		told   bool
	}{
		{"status", down, []string{"create", "credential", "status"}, false},
		{"status", conflict, []string{"create", "credential", "status"}, false},
		{"adopt", down, []string{"create", "credential", "status", "adopt", "remove"}, true},
		{"remove", down, []string{"create", "credential", "status", "adopt", "remove"}, true},
	} {
		o := stored(decided)
		c := newCluster(t, o.call)
		e := everything(o, c, t)
		c.fail[tc.effect] = tc.err
		_, err := c.apply(context.Background(), o, e)
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v", tc.effect, err)
		}
		if diff := cmp.Diff(tc.done, c.did); diff != "" {
			t.Errorf("%s: %s", tc.effect, diff)
		}
		if told := !e.messages[0].to.IsWaiting(); told != tc.told {
			t.Errorf("%s: the runner was told: %t", tc.effect, told)
		}
	}
}

// What is gone already needs no deletion, and a call that is gone no status.
func TestWhatIsGoneIsNoError(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewNotFound(batchv1.Resource("jobs"), "x")
	for _, effect := range []string{"status", "adopt", "remove"} {
		o := stored(decided)
		c := newCluster(t, o.call)
		e := everything(o, c, t)
		c.fail[effect] = gone
		if _, err := c.apply(context.Background(), o, e); err != nil {
			t.Errorf("%s: %v", effect, err)
		}
	}
}

func TestAStatusThatDoesNotChangeIsNotWritten(t *testing.T) {
	t.Parallel()
	o := stored(decided, said(func(o *observation) *v1alpha1.ToolCallStatus {
		decided(o)
		return o.pending(v1alpha1.ReasonQueued, "x")
	}), later(time.Hour))
	c := newCluster(t, o.call)
	if _, err := c.apply(context.Background(), o, effects{status: o.pending(v1alpha1.ReasonQueued, "x")}); err != nil || len(c.did) != 0 {
		t.Errorf("did %q, %v", c.did, err)
	}
	if _, err := c.apply(context.Background(), o, effects{}); err != nil || len(c.did) != 0 {
		t.Errorf("of no effects: did %q, %v", c.did, err)
	}
}

func TestAFailedCreationLeadsToItsOwnEffects(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		effect string
		err    error
		phase  v1alpha1.Phase
		wake   time.Duration
		did    []string
	}{
		"a Job that is refused":    {"create", apierrors.NewBadRequest("no"), v1alpha1.PhaseFailed, 0, []string{"create", "status"}},
		"a Job that fails":         {"create", errors.New("down"), v1alpha1.PhasePending, soonestRetry, []string{"create", "status"}},
		"a Secret that is refused": {"credential", apierrors.NewBadRequest("no"), v1alpha1.PhaseFailed, 0, []string{"create", "credential", "status", "remove"}},
		"a Secret that fails":      {"credential", errors.New("down"), v1alpha1.PhasePending, soonestRetry, []string{"create", "credential", "status"}},
		"a Secret that is there":   {"credential", apierrors.NewAlreadyExists(corev1.Resource("secrets"), "x"), "", acceptWait, []string{"create", "credential"}},
	} {
		o := stored(decided)
		c := newCluster(t, o.call)
		c.fail[tc.effect] = tc.err
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
		got, err := c.apply(context.Background(), o, o.launch(job))
		if err != nil || got.RequeueAfter != tc.wake || !slices.Equal(c.did, tc.did) {
			t.Errorf("%s: looked at after %s, did %q, %v", name, got.RequeueAfter, c.did, err)
		}
		written := &v1alpha1.ToolCall{}
		if err := c.Client.Get(context.Background(), o.name, written); err != nil || written.Status.Phase != tc.phase {
			t.Errorf("%s: phase %q, %v", name, written.Status.Phase, err)
		}
	}
}

// A queue's webhook suspends Jobs when they are made: the call says at once that it waits.
func TestAJobThatIsHeldBackAtItsCreationIsTold(t *testing.T) {
	t.Parallel()
	o := stored(decided)
	c := newCluster(t, o.call)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}}
	e := o.launch(job)
	suspend := true
	c.watch = func(string) { job.Spec.Suspend = &suspend }
	if _, err := c.apply(context.Background(), o, e); err != nil || !slices.Equal(c.did, []string{"create", "credential", "status"}) {
		t.Errorf("did %q, %v", c.did, err)
	}
}

func TestANamespaceWithTooManyCreationsWaits(t *testing.T) {
	t.Parallel()
	o := stored(decided)
	c := newCluster(t, o.call)
	release, _ := c.starts.Acquire(callIn("ns", "another"))
	e := o.launch(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job"}})
	if got, err := c.apply(context.Background(), o, e); err != nil || got.RequeueAfter != latestRetry || !slices.Equal(c.did, []string{"status"}) {
		t.Errorf("looked at after %s, did %q, %v", got.RequeueAfter, c.did, err)
	}
	waits := &v1alpha1.ToolCall{}
	if err := c.Client.Get(t.Context(), o.name, waits); err != nil || waits.Status.Reason != v1alpha1.ReasonNotStarted || !strings.Contains(waits.Status.Message, "slow") {
		t.Errorf("meanwhile it says %s: %s, %v", waits.Status.Reason, waits.Status.Message, err)
	}
	o.call, c.did = waits, nil
	release()
	if !slices.Equal(c.woken, []string{"call"}) {
		t.Errorf("woken are %q", c.woken)
	}
	// What the API server didn't take was asked for once, however long the share took.
	o.now, c.fail["create"] = o.now.Add(time.Hour), errors.New("down")
	if _, err := c.apply(context.Background(), o, e); err != nil || !slices.Equal(c.did, []string{"create", "status"}) {
		t.Errorf("afterwards: did %q, %v", c.did, err)
	}
	if err := c.Client.Get(t.Context(), o.name, waits); err != nil || waits.Status.Phase != v1alpha1.PhasePending {
		t.Errorf("after its first try it is %s: %s, %v", waits.Status.Phase, waits.Status.Message, err)
	}
	if _, ok := c.starts.Acquire(callIn("ns", "another")); !ok {
		t.Error("the share isn't given back")
	}
}

// The change of its Job waits for those of other calls, and what stops its command doesn't.
func TestARunnerIsToldWhileItsJobWaitsToBeChanged(t *testing.T) {
	t.Parallel()
	o := observed(warmBound, cancelled)
	c := newCluster(t, o.call)
	runner, conn := c.op.connect(t, "own", "call-uid")
	for held := true; held; {
		_, held = c.changes.Acquire(callIn("ns", "another"))
	}
	e := effects{adopt: o.job, messages: []message{{to: runner, stop: "call-uid"}}}
	if got, err := c.apply(t.Context(), o, e); err != nil || got.RequeueAfter != latestRetry || len(c.did) != 0 {
		t.Errorf("looked at after %s, did %q, %v", got.RequeueAfter, c.did, err)
	}
	if m, err := conn.Receive(); err != nil || m.Stop == nil {
		t.Errorf("the runner got %+v: %v", m, err)
	}
}

// The answer to the creation was lost: the Job that is there is the call's, and the next pass goes on with it.
func TestAJobThatIsThereAlreadyIsTakenUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*batchv1.Job)
		ours   bool
	}{
		"the call's own":         {func(*batchv1.Job) {}, true},
		"another's":              {func(job *batchv1.Job) { job.OwnerReferences = nil }, false},
		"one with another image": {func(job *batchv1.Job) { job.Spec.Template.Spec.Containers[0].Image = "evil:1" }, false},
		"one without a decision": {func(job *batchv1.Job) { job.Annotations = nil }, false},
		"one without its label":  {func(job *batchv1.Job) { delete(job.Labels, v1alpha1.LabelManagedBy) }, false},
	} {
		o := stored(decided)
		c := newCluster(t, o.call)
		job := jobFor(t, c, o)
		there := job.DeepCopy()
		tc.change(there)
		if err := c.Client.Create(context.Background(), there); err != nil {
			t.Fatal(err)
		}
		e, err := c.createJob(context.Background(), o, o.launch(job))
		if err != nil {
			t.Fatal(err)
		}
		if tc.ours && (e.status != nil || e.wake != apicache.Lag) || !tc.ours && (e.status == nil || e.status.Reason != v1alpha1.ReasonPodRejected || len(e.remove) != 0) {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestTheSoonestLookCounts(t *testing.T) {
	t.Parallel()
	var e effects
	for _, step := range []struct{ in, want time.Duration }{
		{time.Minute, time.Minute}, {time.Hour, time.Minute}, {time.Second, time.Second}, {0, time.Millisecond}, {-time.Hour, time.Millisecond}, {time.Second, time.Millisecond},
	} {
		if e.wakeIn(step.in); e.wake != step.want {
			t.Errorf("after %s: %s", step.in, e.wake)
		}
	}
}

// What an end leaves behind in memory: the call for a moment, no place and no pending budget.
func TestAnEndIsRememberedAndFreesWhatTheCallHeld(t *testing.T) {
	t.Parallel()
	o := stored(decided)
	c := newCluster(t, o.call)
	env := types.NamespacedName{Namespace: "ns", Name: "env"}
	c.Queue.Admit(env, 1, holderOf(o.call))
	reservePending(c.Queue, o.call)
	if _, err := c.apply(context.Background(), o, effects{status: o.fail("Why", "because"), release: true}); err != nil {
		t.Fatal(err)
	}
	if got := c.applier.finished.get(o.name); got == nil || got.Status.Phase != v1alpha1.PhaseFailed {
		t.Errorf("remembered is %+v", got)
	}
	next := o.call.DeepCopy()
	next.Name, next.UID = "next", "next-uid"
	if refusal := reservePending(c.Queue, next); refusal != nil {
		t.Errorf("the requester's next call: %v", refusal)
	}
	if !c.Queue.Admit(env, 1, holderOf(next)) {
		t.Error("the environment's next call has to wait")
	}
}
