package retention

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func endedIn(session string, i int) *v1alpha1.ToolCall {
	name := fmt.Sprint(session, "-", i)
	return &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       v1alpha1.ToolCallSpec{SessionRef: &v1alpha1.SessionReference{Name: session}},
	}
}

// The last calls of each session stay, and nothing is left of those that are gone, whoever deleted them.
func TestTheLastCallsOfEachSessionStay(t *testing.T) {
	t.Parallel()
	const more = 30
	l := NewSchedule(nil, nil)
	for i := range keptOfSession + more {
		for _, session := range []string{"a", "b"} {
			goes, is := l.addOfSession(endedIn(session, i), time.Time{})
			if is != (i >= keptOfSession) || is && goes.Name != fmt.Sprint(session, "-", i-keptOfSession) {
				t.Fatalf("call %d of session %s: %s goes: %t", i, session, goes.Name, is)
			}
		}
	}
	for i := range keptOfSession + more {
		call := endedIn("a", i)
		if uid, is := l.surplus(client.ObjectKeyFromObject(call)); is != (i < more) || is && uid != call.UID {
			t.Errorf("call %d is over: %t, %s", i, is, uid)
		}
	}
	// A repeated write counts once.
	if _, is := l.addOfSession(endedIn("a", keptOfSession+more-1), time.Time{}); is {
		t.Error("a call that ended twice takes the place of another")
	}
	for i := range keptOfSession + more {
		for _, session := range []string{"a", "b"} {
			call := endedIn(session, i)
			if l.Forget(client.ObjectKeyFromObject(call), "another"); l.ofSessions[client.ObjectKeyFromObject(call)].uid == "" {
				t.Errorf("call %d is forgotten for another of its name", i)
			}
			l.Forget(client.ObjectKeyFromObject(call), call.UID)
		}
	}
	if len(l.last)+len(l.ofSessions) > 0 {
		t.Errorf("%d sessions and %d calls are left", len(l.last), len(l.ofSessions))
	}
}
