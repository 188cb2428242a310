package subresources_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// expectCode waits until a user's request for a call's output is answered so: rights take a moment to be in force.
func (s *space) expectCode(user, call string, want int) *http.Response {
	s.t.Helper()
	var r *http.Response
	eventually(s.t, func() error {
		if r = s.ask(s.as(user), http.MethodGet, s.pathOf(call, "")); r.StatusCode != want {
			return fmt.Errorf("%s: answer %d, want %d", user, r.StatusCode, want)
		}
		return nil
	})
	return r
}

func TestReadingNeedsBothRights(t *testing.T) {
	s := newSpace(t)
	s.finished("call", "x")
	s.grant("reads-logs", "get", "subresources.toolcall.dev/toolcalls/log")
	s.grant("reads-calls", "get", "toolcall.dev/toolcalls")
	s.grant("reads-one", "get", "toolcall.dev/toolcalls", "call")
	s.grant("reads-one", "get", "subresources.toolcall.dev/toolcalls/log", "call")
	s.bind("viewer", "toolcall-viewer")
	s.bind("user", "toolcall-user")
	for _, user := range []string{"viewer", "user", "reads-one"} {
		s.expectCode(user, "call", http.StatusOK)
	}
	for user, want := range map[string]string{
		"nobody":      `cannot get resource "toolcalls/log" in API group "subresources.toolcall.dev"`,
		"reads-calls": `cannot get resource "toolcalls/log" in API group "subresources.toolcall.dev"`,
		"reads-logs":  "needs the right to get the call",
	} {
		status := statusOf(t, s.ask(s.as(user), http.MethodGet, s.pathOf("call", "")))
		if status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, want) {
			t.Errorf("%s: %+v", user, status)
		}
	}
	// Whoever may not read a call isn't told whether it is there.
	for _, call := range []string{"call", "none"} {
		if status := statusOf(t, s.ask(s.as("reads-logs"), http.MethodGet, s.pathOf(call, ""))); status.Reason != metav1.StatusReasonForbidden {
			t.Errorf("%s: %+v", call, status)
		}
	}
	s.expectCode("viewer", "none", http.StatusNotFound)
}

// inSession is a call of a session, each made by a user of its own. The session is older by more than the second that times
// of objects have.
func (s *space) inSession(owner, requester string) (*v1alpha1.ToolSession, *v1alpha1.ToolCall) {
	s.t.Helper()
	for _, user := range []string{owner, requester} {
		s.run("create", "rolebinding", "u-"+user, "--clusterrole=toolcall-user", "--user="+user)
	}
	session := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "session"}}
	c := s.clientOf(owner)
	eventually(s.t, func() error { return c.Create(s.t.Context(), session) })
	eventually(s.t, func() error {
		if !time.Now().Truncate(time.Second).After(session.CreationTimestamp.Time) {
			return errors.New("the second isn't over")
		}
		return nil
	})
	call := s.create(s.clientOf(requester), "call", "session")
	s.setStatus(call, finishedStatus("x"))
	return session, call
}

func TestASessionsOutputIsItsOwners(t *testing.T) {
	s := newSpace(t)
	session, _ := s.inSession("owner", "helper")
	s.bind("viewer", "toolcall-viewer")
	s.expectCode("owner", "call", http.StatusOK)
	for _, user := range []string{"viewer", "helper"} {
		status := statusOf(t, s.expectCode(user, "call", http.StatusForbidden))
		if !strings.Contains(status.Message, `verb "use"`) && !strings.Contains(status.Message, "cannot get") {
			t.Errorf("%s: %+v", user, status)
		}
	}
	s.grant("helper", "use", "toolcall.dev/toolsessions", "session")
	s.expectCode("helper", "call", http.StatusOK)
	// Another user of the owner's name.
	imposter := s.as("owner")
	imposter.Impersonate.UID = "other"
	if r := s.ask(imposter, http.MethodGet, s.pathOf("call", "")); r.StatusCode != http.StatusForbidden {
		t.Errorf("another user of the same name: %d", r.StatusCode)
	}
	// Without the session, its calls are those of their requesters.
	if err := client.IgnoreNotFound(s.admin.Delete(t.Context(), session)); err != nil {
		t.Fatal(err)
	}
	s.bind("late", "toolcall-user")
	s.expectCode("late", "call", http.StatusForbidden)
	s.expectCode("owner", "call", http.StatusForbidden)
	// Whoever makes a session of the same name owns none of the calls before.
	late := &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "session"}}
	if err := s.clientOf("late").Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	s.expectCode("late", "call", http.StatusForbidden)
}
