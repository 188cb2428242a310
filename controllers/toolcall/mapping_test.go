package toolcall

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/jobspec"
)

// oneCall is a cache with one call in flight.
type oneCall struct{ call *v1alpha1.ToolCall }

func (c oneCall) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if key != client.ObjectKeyFromObject(c.call) {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("toolcalls").GroupResource(), key.Name)
	}
	c.call.DeepCopyInto(o.(*v1alpha1.ToolCall))
	return nil
}

func (c oneCall) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := &client.ListOptions{}
	options.ApplyOptions(opts)
	indexed := fields.Set{apicache.IndexCallJob: c.call.Status.Job}
	if options.Namespace == c.call.Namespace && options.FieldSelector.Matches(indexed) {
		list.(*v1alpha1.ToolCallList).Items = []v1alpha1.ToolCall{*c.call}
	}
	return nil
}

// Until the Job of a waiting pod is the call's own, only the call's status says whose it is: what happens to the Job
// and its pod must have the call looked at all the same.
func TestWhatHappensToAPodOfThePoolHasTheCallLookedAtThatTookIt(t *testing.T) {
	call := &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c-uid"},
		Status:     v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning, Job: "pool-1"},
	}
	r := NewReconciler(Options{Clock: clock.RealClock{}, Objects: apicache.Reader{Reader: oneCall{call}}})
	job := func(namespace, name string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	pod := func(namespace, job string, annotations map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "p", Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: job, Controller: ptr.To(true)}},
		}}
	}
	own := job("ns", "toolcall-c")
	own.OwnerReferences = []metav1.OwnerReference{{Kind: "ToolCall", Name: "c", Controller: ptr.To(true)}}
	looked := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "c"}}}
	for name, tc := range map[string]struct{ got, want []reconcile.Request }{
		"the Job":                              {r.callsOfJob(t.Context(), job("ns", "pool-1")), looked},
		"its pod":                              {r.callsOfPod(t.Context(), pod("ns", "pool-1", nil)), looked},
		"another Job":                          {r.callsOfJob(t.Context(), job("ns", "pool-2")), nil},
		"another Job's pod":                    {r.callsOfPod(t.Context(), pod("ns", "pool-2", nil)), nil},
		"a Job of that name elsewhere":         {r.callsOfJob(t.Context(), job("other", "pool-1")), nil},
		"a pod of that Job's name elsewhere":   {r.callsOfPod(t.Context(), pod("other", "pool-1", nil)), nil},
		"a Job that was made for the call":     {r.callsOfJob(t.Context(), own), looked},
		"a pod that was made for the call":     {r.callsOfPod(t.Context(), pod("ns", "toolcall-c", map[string]string{jobspec.AnnotationCall: "c"})), looked},
		"a pod that was made for another call": {r.callsOfPod(t.Context(), pod("ns", "toolcall-d", map[string]string{jobspec.AnnotationCall: "d"})), nil},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A request to create a Job may come through after its call has ended: the call is looked at again, and deletes it.
func TestALateJobHasItsEndedCallLookedAt(t *testing.T) {
	ended := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ended", UID: "ended-uid"}}
	r := NewReconciler(Options{Clock: clock.RealClock{}, Objects: apicache.Reader{Reader: oneCall{&v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "another"},
	}}}})
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "tc-ended", OwnerReferences: []metav1.OwnerReference{{Kind: "ToolCall", Name: "ended", Controller: ptr.To(true)}},
	}}
	if got := r.callsOfJob(t.Context(), job); len(got) != 0 {
		t.Errorf("of a call that nobody remembers: %v", got)
	}
	r.watches.finished.keep(ended)
	want := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(ended)}}
	if diff := cmp.Diff(want, r.callsOfJob(t.Context(), job)); diff != "" {
		t.Error(diff)
	}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if got := r.callsOfJob(t.Context(), job); len(got) != 0 {
		t.Errorf("of a Job that has ended: %v", got)
	}
}
