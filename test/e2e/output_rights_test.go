package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/test/internal/stream"
)

var (
	getsLogs  = rbacv1.PolicyRule{APIGroups: []string{"subresources.toolcall.dev"}, Resources: []string{"toolcalls/log"}, Verbs: []string{"get"}}
	getsCalls = rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"get"}}
)

// person is a user of the test's, and what they read with.
func (sp *space) person(t *testing.T, name string) (rbacv1.Subject, *stream.Client) {
	t.Helper()
	user := name + "-" + sp.namespace
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}, sp.reader(t, user, "system:authenticated")
}

// awaitLog asks until the answer is as wanted: bindings take a moment to be in force.
func (sp *space) awaitLog(t *testing.T, reads *stream.Client, call *v1alpha1.ToolCall, code int, part string) {
	t.Helper()
	sp.awaitTrue(t, fmt.Sprintf("answer %d with %q", code, part), func(context.Context) (bool, error) {
		answer := opened(t, reads, logOf(call, output.Stdout), nil)
		text := textOf(t, answer.Body)
		if answer.StatusCode == http.StatusOK && code != http.StatusOK {
			return false, fmt.Errorf("the output was given away: %q", text)
		}
		return answer.StatusCode == code && strings.Contains(text, part), nil
	})
}

// Reading a call's output needs the right to read logs and the right to read the call.
func TestOutputNeedsBothRights(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	call := sp.run(t, shell("echo secret"))
	subject, reads := sp.person(t, "reader")
	sp.awaitLog(t, reads, call, http.StatusForbidden, `cannot get resource \"toolcalls/log\" in API group \"subresources.toolcall.dev\"`)
	sp.allow(t, "logs", subject, getsLogs)
	sp.awaitLog(t, reads, call, http.StatusForbidden, "reading a call's output needs the right to get the call")
	sp.allow(t, "calls", subject, getsCalls)
	sp.awaitLog(t, reads, call, http.StatusOK, "secret\n")

	// The right to read calls isn't enough either.
	other, readsCalls := sp.person(t, "other")
	sp.allow(t, "only-calls", other, getsCalls)
	sp.awaitLog(t, readsCalls, call, http.StatusForbidden, `cannot get resource \"toolcalls/log\"`)
	// The role that ships for people who look has both.
	viewer, looks := sp.person(t, "viewer")
	sp.bind(t, "views", rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "toolcall-viewer"}, viewer)
	sp.awaitLog(t, looks, call, http.StatusOK, "secret\n")
}

// What runs in somebody's session is theirs, while it runs and after it.
func TestOutputOfASessionIsItsCreatorsOnly(t *testing.T) {
	t.Parallel()
	sp := newSpace(t)
	session := sp.startSession(t, "mine")
	done := sp.run(t, inside(session, shell("echo secret")))
	running := sp.create(t, inside(session, inBackground(shell("echo secret; sleep 600"))))
	sp.awaitPhase(t, running, v1alpha1.PhaseRunning)
	subject, reads := sp.person(t, "reader")
	sp.allow(t, "reads", subject, getsLogs, getsCalls)
	mine := sp.reader(t, "")
	for _, call := range []*v1alpha1.ToolCall{done, running} {
		sp.awaitLog(t, reads, call, http.StatusForbidden, `\"mine\" is for the session's creator`)
		sp.awaitLog(t, mine, call, http.StatusOK, "secret\n")
	}
	sp.allow(t, "uses", subject, rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolsessions"}, ResourceNames: []string{"mine"}, Verbs: []string{"use"},
	})
	for _, call := range []*v1alpha1.ToolCall{done, running} {
		sp.awaitLog(t, reads, call, http.StatusOK, "secret\n")
	}
}
