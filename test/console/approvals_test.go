package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
)

// approver is a user with the rights of the ClusterRole toolcall-approver, and the name that the API server has for it.
func (f *fixture) approver() (token, username string) {
	f.t.Helper()
	token = f.user("jane",
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch", "approve"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcallapprovals"}, Verbs: []string{"get", "list", "watch", "create"}})
	return token, "system:serviceaccount:" + f.namespace + ":jane"
}

func requestedBy(username string) func(*v1alpha1.ToolCall) {
	return func(c *v1alpha1.ToolCall) { c.Spec.RequestedBy = &v1alpha1.Requester{Username: username} }
}

// awaiting is the status of a call that waits for a decision about an action.
func awaiting(call *v1alpha1.ToolCall, action string) v1alpha1.ToolCallStatus {
	raw, err := json.Marshal(map[string]any{"action": action, "call": map[string]string{"name": call.Name, "uid": string(call.UID)}})
	if err != nil {
		panic(err)
	}
	now := metav1.NowMicro()
	return v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonAwaitingApproval, Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: action},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonAwaitingApproval, LastTransitionTime: metav1.Now()}},
		Approval: &v1alpha1.ApprovalStatus{
			Digest: approval.Digest(string(raw)), Summary: string(raw), Needed: 1, RequestedAt: now, ExpiresAt: metav1.NewMicroTime(now.Add(time.Hour)),
			Causes: []string{"pushes"}, Messages: []string{"pushes need a person"}, Approvers: []string{"the maintainers"},
		},
	}
}

// waits creates a call that waits for a decision about a command.
func (f *fixture) waits(name, command string) *v1alpha1.ToolCall {
	f.t.Helper()
	call := f.create(name, command, requestedBy("agent"))
	f.report(call, awaiting(call, command))
	return call
}

// approved lets the user have approved a call, as the operator counts it.
func (f *fixture) approved(call *v1alpha1.ToolCall, username string) {
	f.t.Helper()
	decision := &v1alpha1.ToolCallApproval{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: call.Name + "-1"}, Spec: v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: call.Name, UID: string(call.UID)}, Digest: call.Status.Approval.Digest,
		Decision: v1alpha1.DecisionApprove, Approver: &v1alpha1.Requester{Username: username},
	}}
	must(f.t, f.admin.Create(f.t.Context(), decision))
	f.judge(decision, v1alpha1.ApprovalAccepted, "Counted", "it counts")
	status := call.Status
	status.Phase, status.Reason, status.Conditions = v1alpha1.PhaseSucceeded, v1alpha1.ReasonCompleted, nil
	status.Approval.ApprovedBy = []v1alpha1.CountedApproval{{Name: decision.Name, UID: string(decision.UID), Username: username}}
	f.report(call, status)
}

// judge says what becomes of a decision, as the operator does.
func (f *fixture) judge(decision *v1alpha1.ToolCallApproval, phase v1alpha1.ApprovalPhase, reason, message string) {
	f.t.Helper()
	accepted := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[phase == v1alpha1.ApprovalAccepted]
	decision.Status = v1alpha1.ToolCallApprovalStatus{Phase: phase, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionAccepted, Status: accepted, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
	}}}
	must(f.t, f.admin.Status().Update(f.t.Context(), decision))
}

// decision awaits the one decision about a call.
func (f *fixture) decision(call string) *v1alpha1.ToolCallApproval {
	f.t.Helper()
	list := &v1alpha1.ToolCallApprovalList{}
	awaitTrue(f.t, "a decision about "+call, func() bool {
		must(f.t, f.admin.List(f.t.Context(), list, client.InNamespace(f.namespace), client.MatchingFields{"spec.callRef.name": call}))
		return len(list.Items) > 0
	})
	if len(list.Items) != 1 {
		f.t.Fatalf("%d decisions about %s", len(list.Items), call)
	}
	return &list.Items[0]
}

func (f *fixture) hasNoDecision(call string) {
	f.t.Helper()
	list := &v1alpha1.ToolCallApprovalList{}
	must(f.t, f.admin.List(f.t.Context(), list, client.InNamespace(f.namespace), client.MatchingFields{"spec.callRef.name": call}))
	if len(list.Items) > 0 {
		f.t.Errorf("there is a decision about %s: %+v", call, list.Items[0].Spec)
	}
}

const (
	confirmButton = "document.querySelector('.confirm button.primary')"
	confirmWorks  = confirmButton + "?.disabled === false"
)

// awaitLine waits until the line that begins with a name has texts.
func (p *page) awaitLine(name string, texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		p.await(fmt.Sprintf("[...document.querySelectorAll('tbody tr')].find((r) => r.cells[0].textContent === %s)?.textContent.includes(%s)", quote(name), quote(text)))
	}
}

// openDialog opens the dialog of a decision. Its button doesn't work yet, so that a second click on what opened it decides nothing.
func (p *page) openDialog(decision string) {
	p.t.Helper()
	opener := fmt.Sprintf("[...document.querySelectorAll('main > .toolbar button')].find((b) => b.textContent === %s)", quote(decision+"…"))
	p.await(opener + "?.disabled === false")
	disabled := false
	p.eval("("+opener+".click(), "+confirmButton+".click(), "+confirmButton+".disabled)", &disabled)
	if !disabled {
		p.t.Error("the button of the dialog works at once")
	}
}

// pressKey presses a key, as a person does.
func (p *page) pressKey(key string, code int, text string) {
	p.t.Helper()
	for _, event := range []string{"keyDown", "keyUp"} {
		with := params{"type": event, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if event == "keyDown" && text != "" {
			with["text"] = text
		}
		p.do("Input.dispatchKeyEvent", with, nil)
	}
}

func TestAnApproverSeesAndApproves(t *testing.T) {
	f := newFixture(t)
	token, username := f.approver()
	f.approved(f.waits("push-1", "git push origin v1"), username)
	call := f.waits("push-2", "git push origin v2 \u202e#<b>\r\ntrue")
	f.create("other", "true")
	p := f.open("/#/approvals/" + f.namespace)
	p.signIn(token, f.namespace)
	p.awaitLine("push-2", "agent", "git push origin v2 <U+202E>#<b>")
	p.awaitText("#state", "1 call waits.")
	p.eval("[...document.querySelectorAll('td a')].find((a) => a.textContent === 'push-2').click()", nil)
	for _, text := range []string{"agent", "pushes", "pushes need a person", "the maintainers", "1 approval", call.Status.Approval.Digest} {
		p.awaitText("#facts", text)
	}
	p.awaitText("#times", "It has waited for")
	p.awaitText("#request", "git push origin v2 <U+202E>#<b>^M\ntrue")
	p.awaitText("#request", `"action": "git push origin v2 `)
	p.awaitText("#difference", `It was call push-1.`)
	p.awaitText("#difference .difference", "- git push origin v1\n+ git push origin v2 <U+202E>#<b>^M\n+ true")
	p.awaitText("#difference", `-   "action": "git push origin v1"`)
	p.awaitText("#difference", `+   "action": "git push origin v2 `)

	p.openDialog("Approve")
	p.awaitText(".confirm", "agent asks for: git push origin v2 <U+202E>#<b>")
	p.awaitText(".confirm .digest", call.Status.Approval.Digest)
	p.eval("document.querySelector('#note').focus()", nil)
	p.do("Input.insertText", params{"text": "until six"}, nil)
	p.await(confirmWorks)
	f.hasNoDecision("push-2")
	p.eval(confirmButton+".click()", nil)
	made := f.decision("push-2")
	want := v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "push-2", UID: string(call.UID)}, Digest: call.Status.Approval.Digest, Decision: v1alpha1.DecisionApprove, Note: "until six",
	}
	approver := made.Spec.Approver
	if made.Spec.Approver = nil; made.Spec != want || approver == nil || approver.Username != username {
		t.Errorf("%+v by %+v", made.Spec, approver)
	}
	made.Spec.Approver = approver
	p.awaitText("#decided", "The operator hasn't said yet")
	f.judge(made, v1alpha1.ApprovalAccepted, "Counted", "it counts")
	p.awaitText("#decided", "Your decision counts: Approve.")
	p.await("!document.querySelector('dialog')")
	p.show("#/approvals/" + f.namespace)
	f.report(call, v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning})
	p.awaitText("main", "No call waits for approval.")
}

// With the keyboard alone, and keys that are held down decide nothing.
func TestAnApproverDeniesByKeyboard(t *testing.T) {
	f := newFixture(t)
	token, _ := f.approver()
	f.waits("push", "git push --force")
	p := f.open("/#/approvals/" + f.namespace + "/push")
	p.signIn(token, f.namespace)
	p.awaitText("#difference", "calls that you approved, none is of this session")
	deny := "[...document.querySelectorAll('main > .toolbar button')].find((b) => b.textContent === 'Deny…')"
	p.await(deny + "?.disabled === false")
	p.eval(deny+".focus()", nil)
	for range 3 {
		p.pressKey("Enter", 13, "\r")
	}
	p.await("document.activeElement.classList.contains('confirm-text')")
	p.pressKey("Tab", 9, "")
	p.do("Input.insertText", params{"text": "without --force"}, nil)
	p.await(confirmWorks)
	p.pressKey("Tab", 9, "")
	p.await("document.activeElement === " + confirmButton)
	f.hasNoDecision("push")
	p.pressKey("Enter", 13, "\r")
	made := f.decision("push")
	if made.Spec.Decision != v1alpha1.DecisionDeny || made.Spec.Note != "without --force" {
		t.Errorf("%+v", made.Spec)
	}
	f.judge(made, v1alpha1.ApprovalRejected, "Expired", "it came too late")
	p.awaitText("#decided", "Your decision doesn't count: Expired: it came too late")
}

// What is shown in the dialog is what is decided about, or nothing.
func TestAChangeWhileTheDialogIsOpen(t *testing.T) {
	f := newFixture(t)
	token, _ := f.approver()
	call := f.waits("push", "git push origin v1")
	p := f.open("/#/approvals/" + f.namespace + "/push")
	p.signIn(token, f.namespace)
	p.openDialog("Approve")
	p.await(confirmWorks)
	f.report(call, awaiting(call, "git push origin main"))
	p.awaitText(".confirm .error", "What would run has changed.")
	p.awaitText(".confirm del", "git push origin v1")
	p.awaitText(".confirm ins", "git push origin main")
	p.await(confirmButton + ".disabled")
	p.eval(confirmButton+".click()", nil)
	p.eval("window.dispatchEvent(new Event('focus'))", nil)
	p.click("Cancel")
	p.awaitText("#request", `"action": "git push origin main"`)

	// What has to be scrolled is read to its end first; and the time is counted anew when the page was covered.
	long := strings.Repeat("echo a line of a long script\n", 400)
	must(t, f.admin.Delete(t.Context(), call))
	call = f.create("push", long, requestedBy("agent"))
	f.report(call, awaiting(call, "a long script"))
	p.awaitText("#request", "echo a line of a long script")
	p.openDialog("Approve")
	p.awaitText(".confirm", "Read it to the end")
	p.eval("document.querySelector('.confirm-text').scrollTo(0, 1e9)", nil)
	p.await(confirmWorks)
	covered := false
	p.eval("(window.dispatchEvent(new Event('blur')), "+confirmButton+".disabled)", &covered)
	if !covered {
		t.Error("the button works at once after the page was covered")
	}
	p.await(confirmWorks)
	must(t, f.admin.Delete(t.Context(), call))
	p.awaitText(".confirm .error", "The call doesn't wait for a decision any more.")
	p.await(confirmButton + ".disabled")
	f.hasNoDecision("push")
}

// Nothing can be decided about a summary that isn't the one of the digest, and nobody approves a call of their own.
func TestWhatCantBeApproved(t *testing.T) {
	f := newFixture(t)
	token, username := f.approver()
	forged := f.create("forged", "true", requestedBy("agent"))
	status := awaiting(forged, "true")
	status.Approval.Digest = approval.Digest("{}")
	f.report(forged, status)
	own := f.create("own", "true", requestedBy(username))
	f.report(own, awaiting(own, "true"))
	p := f.open("/#/approvals/" + f.namespace + "/forged")
	p.signIn(token, f.namespace)
	p.awaitText("[role=alert]", "doesn't have the digest")
	p.await("[...document.querySelectorAll('main > .toolbar button')].every((b) => b.disabled)")
	status.Approval.Summary, status.Approval.Digest = "{", approval.Digest("{")
	f.report(forged, status)
	p.awaitText("[role=alert]", "The summary can't be read")
	p.await("[...document.querySelectorAll('main > .toolbar button')].every((b) => b.disabled)")
	p.show("#/approvals/" + f.namespace + "/own")
	p.awaitText("[role=alert]", "You asked for this call yourself")
	p.await("[...document.querySelectorAll('main > .toolbar button')].map((b) => b.disabled).join() === 'true,false'")
	p.show("#/approvals/" + f.namespace + "/none")
	p.awaitText("#state", "There is no such call.")
}

// A decision whose answer is lost isn't sent again, and the page says that it doesn't know.
func TestALostAnswer(t *testing.T) {
	sent := 0
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		sent++
		if origin := r.Header.Get("Origin"); origin != "https://"+r.Host {
			t.Errorf("the page says it is of %q", origin)
		}
		w.WriteHeader(http.StatusGatewayTimeout)
		return true
	})
	token, _ := f.approver()
	f.waits("push", "git push")
	p := f.open("/#/approvals/" + f.namespace + "/push")
	p.signIn(token, f.namespace)
	p.openDialog("Approve")
	p.await(confirmWorks)
	p.eval(confirmButton+".click()", nil)
	p.awaitText("main", "It isn't known whether the decision arrived")
	p.await("!document.querySelector('dialog')")
	if sent != 1 {
		t.Errorf("it was sent %d times", sent)
	}
}
