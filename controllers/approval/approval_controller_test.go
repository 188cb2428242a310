package approval

import (
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
	"toolcall.dev/operator/internal/trigger"
)

// The call goes on in one write, and says nothing of an approval afterwards: the decision would keep an empty status, and outlive its call.
func TestADecisionIsLookedAtWhenThePolicyNeedsNoneAnyMore(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	before := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "uid"}}
	after := before.DeepCopy()
	before.Status.Approval = &v1alpha1.ApprovalStatus{}
	decision := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "decision"}}
	decision.Spec.CallRef.Name = "call"
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(decision).
		WithIndex(&v1alpha1.ToolCallApproval{}, apicache.IndexApprovalCall, func(o client.Object) []string {
			return []string{o.(*v1alpha1.ToolCallApproval).Spec.CallRef.Name}
		}).Build()
	r := &Reconciler{Objects: apicache.Reader{Reader: cached}}
	for name, c := range map[string]struct {
		before, after *v1alpha1.ToolCall
		looks         int
	}{
		"a call that waits for decisions":               {before, before, 1},
		"a call that was waiting for them":              {before, after, 1},
		"a call that people have nothing to do with":    {after, after, 0},
		"a call that asks for decisions the first time": {after, before, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				queue := trigger.New("decisions").Queue("", nil)
				defer queue.ShutDown()
				r.onCalls().Update(t.Context(), event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}, queue)
				time.Sleep(statusDelay)
				synctest.Wait()
				if n := queue.Len(); n != c.looks {
					t.Errorf("%d decisions are looked at, want %d", n, c.looks)
				}
			})
		})
	}
}
