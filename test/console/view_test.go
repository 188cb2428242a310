package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/denials"
)

// row is the text of the line of a call or a session, by its name.
func row(name string) string {
	return fmt.Sprintf("[...document.querySelectorAll('tbody tr')].find((r) => r.dataset.call === %[1]s || r.cells[1]?.textContent === %[1]s)?.textContent", quote(name))
}

func (p *page) awaitRow(name string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.await(row(name) + "?.includes(" + quote(text) + ")")
	}
}

func succeeded() v1alpha1.ToolCallStatus {
	return v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Reason: v1alpha1.ReasonCompleted, ExitCode: ptr.To(int32(0)), DurationMilliseconds: ptr.To(int64(1500)),
		Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"}, Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "make all"},
		Timings: &v1alpha1.CallTimings{
			AcceptedMilliseconds: ptr.To(int64(100)), StartedMilliseconds: ptr.To(int64(400)), FinishedMilliseconds: ptr.To(int64(2000)), Path: v1alpha1.PathCold,
		},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGuardsPassed, LastTransitionTime: metav1.Now(),
		}},
	}
}

func TestListsAreLive(t *testing.T) {
	f := newFixture(t)
	first := f.create("first", "make all", func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: "jane"} })
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitRow("first", "Waiting", "jane")
	p.awaitText("#state", "1 call, live.")
	f.report(first, succeeded())
	p.awaitRow("first", "Succeeded", "make all", "tools", "1.50 s")
	second := f.create("second", "true")
	p.awaitRow("second", "Waiting")
	p.await("document.querySelectorAll('tbody tr').length === 2")
	must(t, f.admin.Delete(t.Context(), second))
	p.await("document.querySelectorAll('tbody tr').length === 1")

	must(t, f.admin.Create(t.Context(), &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "afternoon"}}))
	p.eval("[...document.querySelectorAll('nav a')].find((a) => a.textContent === 'Sessions').click()", nil)
	p.awaitRow("afternoon", "Pending")
	p.awaitText("h1", "Sessions in "+f.namespace)
}

// A watch that breaks, or that can't go on from where it was, loses nothing.
func TestListsStayLive(t *testing.T) {
	var watches atomic.Int32
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "true" || watches.Add(1) > 1 {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
		return true
	})
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	f.create("first", "true")
	p.awaitRow("first", "Waiting")
	awaitTrue(t, "a second watch", func() bool { return watches.Load() > 1 })
	f.console.CloseClientConnections()
	f.create("second", "true")
	p.awaitRow("second", "Waiting")
}

func TestADenialIsExplained(t *testing.T) {
	f := newFixture(t)
	call := f.create("denied", "curl example.test")
	status := v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseDenied, Reason: v1alpha1.ReasonShellCommandNotAllowed, Message: "curl isn't allowed", RetrySafe: ptr.To(true),
		Environment: &v1alpha1.ResolvedEnvironment{Name: "tools"},
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonShellCommandNotAllowed,
			Message: "curl isn't allowed", LastTransitionTime: metav1.Now(),
		}},
	}
	f.report(call, status)
	must(t, f.admin.Create(t.Context(), &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools"},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "a", PolicyRef: &v1alpha1.PolicyReference{Name: "strict"}},
	}))
	p := f.open("/#/call/" + f.namespace + "/denied")
	p.signIn(f.viewer(), f.namespace)
	rule := denials.Rules()[v1alpha1.ReasonShellCommandNotAllowed]
	for _, text := range []string{"The call was denied: nothing ran.", "strict, of environment tools (you may not read it)"} {
		p.awaitText("#decision", text)
	}
	for _, text := range []string{rule.Field, rule.Owner, rule.Requester, "docs/troubleshooting.md, ShellCommandNotAllowed", "kubectl toolcall explain-denial denied -n " + f.namespace, "the command never started"} {
		p.awaitText("#advice", text)
	}
	p.awaitText("#outcome h1", "Denied, so nothing ran: curl isn't allowed.")
	said := 0
	p.eval("document.querySelector('main').textContent.split(\"curl isn't allowed\").length - 1", &said)
	if said != 1 {
		t.Errorf("the message is said %d times", said)
	}
	p.awaitText("#summary pre", "curl example.test")
	p.awaitText("#state", "The call has finished.")
}

func TestAnEditShowsItsChanges(t *testing.T) {
	f := newFixture(t)
	f.create("edit", "", func(c *v1alpha1.ToolCall) {
		c.Spec.Shell = nil
		c.Spec.File = &v1alpha1.FileAction{Operation: v1alpha1.FileEdit, Path: "notes.txt", Edits: []v1alpha1.TextReplacement{
			{OldString: "one\ntwo", NewString: "1"}, {OldString: "three", ReplaceAll: true},
		}}
	})
	p := f.open("/#/call/" + f.namespace + "/edit")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#summary pre", "Edit notes.txt\n@@ 1 @@\n-one\n-two\n+1\n@@ 2, everywhere @@\n-three")
}

func TestTimingIsABar(t *testing.T) {
	f := newFixture(t)
	call := f.create("timed", "make all")
	p := f.open("/#/call/" + f.namespace + "/timed")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#timing", "Nothing was timed yet.")
	f.report(call, succeeded())
	p.await("document.querySelectorAll('.bar span').length === 3")
	var widths []float64
	p.eval("[...document.querySelectorAll('.bar span')].map((s) => s.getBoundingClientRect().width)", &widths)
	if total := widths[0] + widths[1] + widths[2]; total < 200 || !near(widths[0]/total, 0.05) || !near(widths[1]/total, 0.15) || !near(widths[2]/total, 0.8) {
		t.Errorf("the parts are %v wide", widths)
	}
	p.awaitText("#timing", "1.60 s until finished")
	p.awaitText("#timing", "in a new pod")
}

// awaitTrue waits for what isn't in the page.
func awaitTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is never %s", what)
		}
	}
}

func near(got, want float64) bool { return got > want-0.02 && got < want+0.02 }

func TestErrorsSayWhatToDo(t *testing.T) {
	f := newFixture(t)
	p := f.open("/")
	p.signIn("not a token!", "")
	p.awaitText("form", "That isn't a token.")
	p.signIn("abc.def.ghi", f.namespace)
	p.awaitText("form", "The token is wrong, or has expired.")
	p.signIn(f.user("nobody"), f.namespace)
	p.awaitText("#state", "cannot list resource \"toolcalls\"")
	p.awaitText("#state", "toolcall-viewer")
	must(t, f.admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "nobody"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "granted"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: f.namespace, Name: "nobody"}},
	}))
	must(t, f.admin.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "granted"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"list", "watch"}}},
	}))
	p.await("(document.querySelector('#state button')?.click(), document.querySelector('#state').textContent.includes('There are none.'))")
	p.click("Forget the token")
	p.signIn(f.user("lister", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch"},
	}), f.namespace)
	call := f.create("a", "true")
	status := succeeded()
	status.Stdout = "from the \x1b[31mstatus"
	f.report(call, status)
	p.show("#/call/" + f.namespace + "/a")
	p.awaitText("#stdout", "from the status")
	p.awaitText("#stdout .t-fg1", "status")
	p.awaitText("#output", "toolcalls/log")
	p.show("#/call/" + f.namespace + "/none")
	p.awaitText("#state", "There is no call none")
	// It may still come, go, and come again.
	for _, command := range []string{"echo first", "echo second"} {
		none := f.create("none", command)
		p.awaitText("#summary pre", command)
		p.awaitText("#state", "Live.")
		must(t, f.admin.Delete(t.Context(), none))
		p.awaitText("#state", "The call was deleted.")
	}
	p.show("#/call/" + f.namespace + "/a/b/c")
	p.awaitText("main", "There is no such page.")
}

// A token that stops to be valid is asked for again, in the same place.
func TestATokenThatExpires(t *testing.T) {
	var expired atomic.Bool
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) bool {
		if expired.Load() && strings.HasPrefix(r.URL.Path, "/apis/") {
			r.Header.Set("Authorization", "Bearer expired")
		}
		return false
	})
	f.create("a", "true")
	p, viewer := f.open("/#/calls/"+f.namespace), f.viewer()
	p.signIn(viewer, f.namespace)
	p.awaitRow("a", "Waiting")
	expired.Store(true)
	f.console.CloseClientConnections()
	p.awaitText("form", "The token is wrong, or has expired.")
	expired.Store(false)
	p.signIn(viewer, f.namespace)
	p.awaitRow("a", "Waiting")
}

// The token is in the page's memory and nowhere else.
func TestTheTokenIsntKept(t *testing.T) {
	f := newFixture(t)
	f.create("a", "true")
	p, viewer := f.open("/#/calls/"+f.namespace), f.viewer()
	p.signIn(viewer, f.namespace)
	p.awaitRow("a", "Waiting")
	p.click("Forget the token")
	p.await("document.querySelector('#token').type === 'text' && getComputedStyle(document.querySelector('#token')).webkitTextSecurity === 'disc'")
	p.signIn(viewer, f.namespace)
	p.awaitRow("a", "Waiting")
	var places []string
	p.eval(`(async () => [JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.cookie, location.href, document.documentElement.outerHTML,
		JSON.stringify(await indexedDB.databases()), JSON.stringify(await caches.keys()), JSON.stringify(history.state), window.name,
		...[...document.querySelectorAll('input')].map((i) => i.value), JSON.stringify(Object.keys(window).filter((k) => k !== 'violations').map((k) => { try { return String(window[k]); } catch { return ''; } }))])()`, &places)
	if len(places) < 9 || slices.ContainsFunc(places, func(place string) bool { return strings.Contains(place, viewer) }) {
		t.Errorf("the token is in one of %d places: %.500q", len(places), places)
	}
	p.do("Page.reload", nil, nil)
	p.await("document.querySelector('#token') && document.querySelector('#token').value === ''")
	if n := p.count("tbody tr"); n != 0 {
		t.Errorf("%d rows without a token", n)
	}
}
