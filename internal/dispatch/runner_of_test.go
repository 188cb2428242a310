package dispatch_test

import (
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
)

func TestTheRunnerOfACallIsTheRecordedOne(t *testing.T) {
	o := newObjects()
	records := &dispatch.Records{Cached: o, Live: o}
	call := func(change func(*v1alpha1.ToolCall)) {
		c := &v1alpha1.ToolCall{}
		c.UID = "c1"
		change(c)
		o.calls["ns/call-c1"] = c
	}
	session := func(uid, keyHash string) {
		s := &v1alpha1.ToolSession{}
		s.UID = types.UID(uid)
		if keyHash != "" {
			s.Status.Runner = &v1alpha1.RunnerBinding{KeyHash: keyHash}
		}
		o.sessions["ns/session"] = s
	}
	inSession := func(uid string) func(*v1alpha1.ToolCall) {
		return func(c *v1alpha1.ToolCall) { c.Spec.SessionRef = &v1alpha1.SessionReference{Name: "session", UID: uid} }
	}
	for _, c := range []struct {
		name    string
		prepare func()
		want    string
	}{
		{"no call", func() {}, ""},
		{"a call without one", func() { call(func(*v1alpha1.ToolCall) {}) }, ""},
		{"a call that has one", func() { call(func(c *v1alpha1.ToolCall) { c.Status.Runner = &v1alpha1.RunnerBinding{KeyHash: "k"} }) }, "k"},
		{"another call of the name", func() {
			call(func(c *v1alpha1.ToolCall) { c.UID, c.Status.Runner = "c2", &v1alpha1.RunnerBinding{KeyHash: "k"} })
		}, ""},
		{"no session", func() { call(inSession("")) }, ""},
		{"a session without one", func() { session("s1", "") }, ""},
		{"a session that has one", func() { session("s1", "k2") }, "k2"},
		{"that session", func() { call(inSession("s1")) }, "k2"},
		{"another session", func() { call(inSession("s2")) }, ""},
	} {
		c.prepare()
		if got, err := records.RunnerOf(t.Context(), keyOf("c1")); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", c.name, got, err, c.want)
		}
	}
	o.fails = errors.New("no answer")
	if _, err := records.RunnerOf(t.Context(), keyOf("c1")); err == nil {
		t.Error("there is an answer")
	}
}

// The cache has no calls that have ended. A session's runner has their output.
func TestTheRunnerOfACallThatHasEndedIsFound(t *testing.T) {
	cached, live := newObjects(), newObjects()
	records := &dispatch.Records{Cached: cached, Live: live}
	call := &v1alpha1.ToolCall{}
	call.UID, call.Spec.SessionRef = "c1", &v1alpha1.SessionReference{Name: "session"}
	call.Status.Phase, call.CreationTimestamp = v1alpha1.PhaseSucceeded, metav1.Unix(1000, 0)
	live.calls["ns/call-c1"] = call
	for created, want := range map[int64]string{900: "k", 1000: "k", 1001: ""} {
		session := &v1alpha1.ToolSession{}
		session.UID, session.CreationTimestamp = "s1", metav1.Unix(created, 0)
		session.Status.Runner = &v1alpha1.RunnerBinding{KeyHash: "k"}
		cached.sessions["ns/session"] = session
		if got, err := records.RunnerOf(t.Context(), keyOf("c1")); err != nil || got != want {
			t.Errorf("a session of second %d: got %q, %v; want %q", created, got, err, want)
		}
	}
	live.hangs = true
	synctest.Test(t, func(t *testing.T) {
		if _, err := records.RunnerOf(t.Context(), keyOf("c1")); err == nil {
			t.Error("there is an answer")
		}
	})
}
