package follow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// session creates a session.
func (f *fixture) session(name string) *v1alpha1.ToolSession {
	f.t.Helper()
	session, err := f.clients().CreateSession(f.t.Context(), &v1alpha1.ToolSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, GenerateName: "session-"},
	})
	must(f.t, err)
	return session
}

// setPhase writes a session's phase, as the operator does.
func (f *fixture) setPhase(session *v1alpha1.ToolSession, phase v1alpha1.SessionPhase) {
	f.t.Helper()
	current := session.DeepCopy()
	current.Status.Phase = phase
	must(f.t, f.calls.Status().Patch(f.t.Context(), current, client.MergeFrom(session)))
}

// callIn creates a call in a session.
func (f *fixture) callIn(session *v1alpha1.ToolSession) *v1alpha1.ToolCall {
	f.t.Helper()
	call, err := f.clients().Create(f.t.Context(), &v1alpha1.ToolCall{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "call-"},
		Spec: v1alpha1.ToolCallSpec{
			Shell:      &v1alpha1.ShellAction{Command: "true"},
			SessionRef: &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)},
		},
	})
	must(f.t, err)
	return call
}

// sessionOutcome is what WaitSession returned.
type sessionOutcome struct {
	session *v1alpha1.ToolSession
	err     error
}

// waitReady runs WaitSession in the background, until the session is ready. It reports each phase that it sees.
func (f *fixture) waitReady(ctx context.Context, clients follow.Clients, session *v1alpha1.ToolSession) (<-chan v1alpha1.SessionPhase, <-chan sessionOutcome) {
	phases, done := make(chan v1alpha1.SessionPhase, 10), make(chan sessionOutcome, 1)
	go func() {
		got, err := clients.WaitSession(ctx, session, follow.SessionWatcher{
			Until: func(s *v1alpha1.ToolSession) bool {
				phases <- s.Status.Phase
				return s.Status.Phase == v1alpha1.SessionReady
			},
		})
		done <- sessionOutcome{got, err}
	}()
	return phases, done
}

func TestWaitForASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.session("")
	if !strings.HasPrefix(session.Name, "session-") {
		t.Errorf("the name is %s", session.Name)
	}
	phases, done := f.waitReady(t.Context(), f.clients(), session)
	seen := []v1alpha1.SessionPhase{<-phases}
	f.setPhase(session, v1alpha1.SessionPending)
	seen = append(seen, <-phases)
	f.setPhase(session, v1alpha1.SessionReady)
	seen = append(seen, <-phases)
	end := <-done
	if end.err != nil || end.session.Status.Phase != v1alpha1.SessionReady {
		t.Errorf("got %v, %v", end.session, end.err)
	}
	if want := []v1alpha1.SessionPhase{"", v1alpha1.SessionPending, v1alpha1.SessionReady}; !slices.Equal(seen, want) {
		t.Errorf("phases are %q", seen)
	}
}

func TestWaitForASessionSurvivesBrokenWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := f.session("s")
	broken := brokenWatches(f.calls, func(n int32) {
		if n == 2 {
			f.setPhase(session, v1alpha1.SessionReady)
		}
	})
	_, done := f.waitReady(t.Context(), follow.Clients{Calls: broken}, session)
	if end := <-done; end.err != nil || end.session.Status.Phase != v1alpha1.SessionReady {
		t.Errorf("got %v, %v", end.session, end.err)
	}
}

// Another session of the same name isn't the one that was created, also if the first one was never observed.
func TestWaitForADeletedSession(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"gone": false, "another of that name": true} {
		f := newFixture(t)
		session := f.session("s")
		must(t, f.calls.Delete(t.Context(), session))
		if again {
			f.setPhase(f.session("s"), v1alpha1.SessionReady)
		}
		_, done := f.waitReady(t.Context(), f.clients(), session)
		if end := <-done; !errors.Is(end.err, follow.ErrSessionDeleted) {
			t.Errorf("%s: got %v, %v", name, end.session, end.err)
		}
	}
}

func TestWaitForASessionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	phases, done := f.waitReady(ctx, f.clients(), f.session("s"))
	<-phases
	cancel()
	if end := <-done; !errors.Is(end.err, context.Canceled) {
		t.Errorf("got %v", end.err)
	}
}

// Errors of a request that creates a session say what the user can do.
func TestErrorsOfCreatingASession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	sessions := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "toolsessions"}
	for name, c := range map[string]struct {
		err  error
		want []string
	}{
		"no permission":     {apierrors.NewForbidden(sessions, "s", errors.New(`User "u" cannot create resource "toolsessions"`)), []string{"the ClusterRole toolcall-user grants permission"}},
		"no such kind":      {&meta.NoKindMatchError{}, []string{"this cluster has no ToolSession kind", "--context"}},
		"an existing name":  {apierrors.NewAlreadyExists(sessions, "s"), []string{f.namespace + "/session-", "already exists: choose another name"}},
		"a rejected object": {apierrors.NewBadRequest("no"), []string{"the API server rejected the session"}},
		"a lost response":   {errors.New("EOF"), []string{"unknown whether the session was created", f.namespace + "/session-"}},
		"an overloaded one": {apierrors.NewTooManyRequests("slow down", 1), []string{"create session " + f.namespace + "/session-"}},
	} {
		calls := interceptor.NewClient(f.calls, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return c.err },
		})
		_, err := follow.Clients{Calls: calls}.CreateSession(t.Context(), &v1alpha1.ToolSession{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, GenerateName: "session-"},
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in %v", name, want, err)
			}
		}
	}
}

// Until ends a wait before the call has finished.
func TestWaitUntilACallRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	call, s := f.create(), newRecorder()
	watcher := s.watcher()
	watcher.Until = func(call *v1alpha1.ToolCall) bool { return call.Status.Phase == v1alpha1.PhaseRunning }
	done := f.wait(t.Context(), f.clients(), call, watcher)
	until(t, "first state", s.changed)
	f.start(call, "pod")
	if end := result(t, done); end.err != nil || end.call.Status.Phase != v1alpha1.PhaseRunning || follow.Finished(end.call) {
		t.Errorf("got %v, %v", end.call, end.err)
	}
}
