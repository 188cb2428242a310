package plugin

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestTimelineIsToScale(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, timings := range map[string]*v1alpha1.CallTimings{
		"": nil,
		"[" + strings.Repeat("-", 20) + strings.Repeat("#", 20) + "] 500ms until started, 500ms until finished": {
			AcceptedMilliseconds: ptr.To(int64(0)), StartedMilliseconds: ptr.To(int64(500)), FinishedMilliseconds: ptr.To(int64(1000)),
		},
		"[.-" + strings.Repeat("#", 39) + "] 1ms until accepted, 1ms until started, 10.0s until finished": {
			AcceptedMilliseconds: ptr.To(int64(1)), StartedMilliseconds: ptr.To(int64(2)), FinishedMilliseconds: ptr.To(int64(10_000)),
		},
		"[" + strings.Repeat(".", 4) + strings.Repeat("-", 36) + "] 2.0s until accepted, 18.0s waiting": {AcceptedMilliseconds: ptr.To(int64(2000))},
		"[" + strings.Repeat(".", 10) + strings.Repeat("-", 10) + strings.Repeat("#", 20) + "] 5.0s until accepted, 5.0s until started, 10.0s running": {
			AcceptedMilliseconds: ptr.To(int64(5000)), StartedMilliseconds: ptr.To(int64(10_000)),
		},
	} {
		call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-20 * time.Second))}}
		call.Status.Timings = timings
		if got := timeline(call, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// describe shows the Events of this very call, oldest first, and says when it can't.
func TestDescribeShowsEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("c")
	f.run("describe", "c").expect(t, 0, "Events: none")
	call := f.call("c")
	event := func(name, reason string, ago time.Duration) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Reason: reason, Type: "Warning", Message: "because\x1b[31m",
			InvolvedObject: corev1.ObjectReference{Kind: "ToolCall", Namespace: f.namespace, Name: "c", UID: call.UID},
			LastTimestamp:  metav1.NewTime(time.Now().Add(-ago)), Count: 2, FirstTimestamp: metav1.NewTime(time.Now().Add(-ago)),
		}
	}
	other := event("other", "Other", 0)
	other.InvolvedObject.UID = "another-call"
	f.make(event("late", "Late", 20*time.Minute), event("early", "Early", time.Hour), other)
	got := f.run("describe", "c")
	got.expect(t, 0, "Events: Warning Early 60m (2 times) because^[[31m Warning Late 20m (2 times) because^[[31m")
	if strings.Contains(got.out, "Other") {
		t.Errorf("the Event of another call is shown: %s", got.out)
	}
	user := f.namespace + "-reader"
	f.make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
	f.eventually("right to read calls", func() bool { return f.run("get", "c", "--as", user).code == 0 })
	f.run("describe", "c", "--as", user).expect(t, 0, "Events: not shown: you have no permission to list events in this namespace")
}

// Whatever a status says, the bar is as long as it can be.
func TestATimelineOfNonsenseIsShort(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, milliseconds := range [][3]int64{{-5, -10, 1 << 62}, {1 << 62, -1 << 62, 1}, {-1, -1, -1}, {1 << 62, 1 << 62, 1 << 62}} {
		call := &v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{Timings: &v1alpha1.CallTimings{
			AcceptedMilliseconds: &milliseconds[0], StartedMilliseconds: &milliseconds[1], FinishedMilliseconds: &milliseconds[2],
		}}}
		if got := timeline(call, now); len(got) > 10*timelineWidth {
			t.Errorf("%v: %d characters", milliseconds, len(got))
		}
	}
}
