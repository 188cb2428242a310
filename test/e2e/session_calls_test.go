package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/full"
)

// startSession creates a session and waits until it takes calls.
func (sp *space) startSession(t *testing.T, name string, adjust ...func(*v1alpha1.ToolSession)) *v1alpha1.ToolSession {
	t.Helper()
	return sp.awaitIncarnation(t, sp.createSession(t, name, adjust...), 1)
}

func concurrent(n int32) func(*v1alpha1.ToolSession) {
	return func(s *v1alpha1.ToolSession) { s.Spec.MaxConcurrentCalls = ptr.To(n) }
}

// inside has a call run in a session.
func inside(session *v1alpha1.ToolSession, spec v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
	spec.SessionRef = &v1alpha1.SessionReference{Name: session.Name, UID: string(session.UID)}
	return spec
}

func inBackground(spec v1alpha1.ToolCallSpec) v1alpha1.ToolCallSpec {
	spec.Background = true
	return spec
}

// What carries over from call to call is the file system, and nothing else.
func TestFilesCarryOverInASession(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "files")
	first := sp.run(t, inside(session, shell("echo kept >file; echo $HOME >/tmp/home; echo mine >~/own; mkdir sub; cd sub; umask 077; export LEFT=1; (setsid sleep 600 &); pwd")))
	if first.Status.Phase != v1alpha1.PhaseSucceeded {
		t.Fatalf("%s: %s %s", first.Status.Reason, first.Status.Message, first.Status.Stderr)
	}
	second := sp.run(t, inside(session, shell("cat file ~/own; [ \"$(cat /tmp/home)\" = \"$HOME\" ] && echo home; echo \"${LEFT-unset} $(umask)\"; pgrep sleep || echo none; basename $PWD")))
	expect(t, second, succeeded("kept\nmine\nhome\nunset 0022\nnone\nworkspace\n"))
	for sequence, call := range []*v1alpha1.ToolCall{first, second} {
		s := &call.Status
		if s.Session == nil || s.Session.Name != "files" || s.Session.Incarnation != 1 || s.Session.Sequence == 0 || s.Timings.Path != v1alpha1.PathSession || s.Pod != session.Status.Pod || s.Job != "" {
			t.Errorf("call %d: session %+v, path %s, pod %q", sequence, s.Session, s.Timings.Path, s.Pod)
		}
	}
	if first.Status.Session.Sequence >= second.Status.Session.Sequence {
		t.Error("the second call comes before the first")
	}
	other := sp.startSession(t, "another")
	expect(t, sp.run(t, inside(other, shell("ls; ls /tmp"))), succeeded(""))
}

// Calls run one after the other, in the order of their creation, whatever they do.
func TestCallsOfASessionTakeTurns(t *testing.T) {
	coldFirst(t, testCallsOfASessionTakeTurns, wayWarm)
}

func testCallsOfASessionTakeTurns(t *testing.T, w way) {
	sp := w.newSpace(t)
	session := sp.startSession(t, "turns")
	var calls []*v1alpha1.ToolCall
	for i := range 12 {
		calls = append(calls, sp.create(t, inside(session, shell(fmt.Sprintf("echo %d >>order; sleep 0.%d; echo end >>order", i, i%3)))))
	}
	denied := sp.create(t, inside(session, structured("rm", "-rf", "/")))
	for _, call := range calls {
		if now := sp.awaitFinished(t, call); now.Status.Phase != v1alpha1.PhaseSucceeded {
			t.Errorf("%s: %s", now.Status.Reason, now.Status.Message)
		}
	}
	var want strings.Builder
	for i := range calls {
		fmt.Fprintf(&want, "%d\nend\n", i)
	}
	expect(t, sp.run(t, inside(session, shell("cat order"))), succeeded(want.String()))
	if now := sp.awaitFinished(t, denied); now.Status.Phase == v1alpha1.PhaseSucceeded {
		t.Errorf("%s: %s", now.Status.Reason, now.Status.Message)
	}
}

// A server is a call in the background: it doesn't take the session's turn, and ends with its cancellation or its session.
func TestAServerRunsInTheBackground(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, metacharactersAllowed)
	session := sp.startSession(t, "servers")
	server := sp.create(t, inside(session, inBackground(structured("python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"))))
	sp.awaitPhase(t, server, v1alpha1.PhaseRunning)
	fetch := "import time,urllib.request\nfor i in range(100):\n  try:\n    print(urllib.request.urlopen('http://127.0.0.1:8123/page').read().decode())\n    break\n  except OSError: time.sleep(0.1)"
	expect(t, sp.run(t, inside(session, shell("echo -n hello >page"))), succeeded(""))
	expect(t, sp.run(t, inside(session, structured("python3", "-c", fetch))), succeeded("hello\n"))
	sp.cancel(t, server)
	if now := sp.awaitFinished(t, server); now.Status.Phase != v1alpha1.PhaseCancelled || now.Status.TimeoutSeconds != nil {
		t.Errorf("the server ended %s/%s, its limit is %v", now.Status.Phase, now.Status.Reason, now.Status.TimeoutSeconds)
	}
	again := sp.create(t, inside(session, inBackground(shell("sleep 600"))))
	sp.awaitPhase(t, again, v1alpha1.PhaseRunning)
	waiting := sp.create(t, inside(session, shell("sleep 600")))
	sp.awaitPhase(t, waiting, v1alpha1.PhaseRunning)
	behind := sp.create(t, inside(session, shell("true")))
	sp.awaitCall(t, behind, "turn", func(c *v1alpha1.ToolCall) bool { return len(c.Status.Conditions) > 0 })
	sp.editSession(t, session, func(spec *v1alpha1.ToolSessionSpec) { spec.End = true })
	for _, call := range []*v1alpha1.ToolCall{again, waiting} {
		if c := sp.awaitFinished(t, call); c.Status.Phase != v1alpha1.PhaseCancelled || ptr.Deref(c.Status.RetrySafe, true) {
			t.Errorf("a running call ended %s/%s, retrySafe %v", c.Status.Phase, c.Status.Reason, c.Status.RetrySafe)
		}
	}
	if c := sp.awaitFinished(t, behind); c.Status.Reason != v1alpha1.ReasonSessionEnded || !ptr.Deref(c.Status.RetrySafe, false) {
		t.Errorf("a waiting call ended %s/%s, retrySafe %v", c.Status.Phase, c.Status.Reason, c.Status.RetrySafe)
	}
	late := sp.run(t, inside(session, shell("true")))
	expect(t, late, neverRan(v1alpha1.ReasonSessionEnded))
}

// A session belongs to its creator, and to whom a role lets use it.
func TestWhoMayUseASession(t *testing.T) {
	t.Parallel()
	sp := newSpace(t, func(p *v1alpha1.ExecutionPolicySpec) { p.Access = v1alpha1.AccessOpen })
	session := sp.startSession(t, "mine")
	alice := sp.newAgent(t, "alice")
	expect(t, sp.runAs(t, alice, inside(session, shell("true"))), denied(v1alpha1.ReasonSessionNotAllowed))
	sp.allow(t, "uses-mine", alice.subject, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, ResourceNames: []string{"mine"}, Verbs: []string{"use"},
	})
	sp.awaitTrue(t, "right to use the session", func(context.Context) (bool, error) {
		return sp.runAs(t, alice, inside(session, shell("true"))).Status.Phase == v1alpha1.PhaseSucceeded, nil
	})
	expect(t, sp.run(t, v1alpha1.ToolCallSpec{Shell: &v1alpha1.ShellAction{Command: "true"}, SessionRef: &v1alpha1.SessionReference{Name: "none"}}), neverRan(v1alpha1.ReasonSessionNotFound))
	other := inside(session, shell("true"))
	other.SessionRef.UID = "00000000-0000-0000-0000-000000000000"
	expect(t, sp.run(t, other), neverRan(v1alpha1.ReasonSessionNotFound))
}

// What a call does that is deleted while it runs ends, and the session goes on.
func TestACallOfASessionIsDeletedWhileItRuns(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "goes-on")
	call := sp.create(t, inside(session, shell("sleep 600")))
	sp.awaitPhase(t, call, v1alpha1.PhaseRunning)
	must(t, sp.client.Delete(t.Context(), call))
	expect(t, sp.run(t, inside(session, shell("pgrep sleep || echo none"))), succeeded("none\n"))
}

// The finished calls of a session go after the last 200.
func TestASessionKeepsItsLastCallsOnly(t *testing.T) {
	full.Only(t, "controllers/retention shows it before an API server")
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "many", concurrent(8))
	const calls = 230
	for range calls {
		must(t, sp.client.Create(t.Context(), sp.newCall(inside(session, structured("true")))))
	}
	sp.awaitTrue(t, "end of all calls but the last 200", func(ctx context.Context) (bool, error) {
		list := &v1alpha1.ToolCallList{}
		if err := sp.client.List(ctx, list, client.InNamespace(sp.namespace)); err != nil {
			return false, err
		}
		for i := range list.Items {
			if !list.Items[i].Status.Phase.Terminal() {
				return false, nil
			}
		}
		return len(list.Items) == 200, nil
	})
}
