package tasks

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/approval"
)

func TestStates(t *testing.T) {
	t.Parallel()
	created, changed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)
	unknown := []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown, LastTransitionTime: metav1.NewTime(changed)}}
	asked := &v1alpha1.ApprovalStatus{Needed: 2, ApprovedBy: []v1alpha1.CountedApproval{{}}, Approvers: []string{"the owners"}, ExpiresAt: metav1.NewMicroTime(changed)}
	for name, test := range map[string]struct {
		status                v1alpha1.ToolCallStatus
		state, message, since string
		poll                  int64
	}{
		"new":     {v1alpha1.ToolCallStatus{}, working, "", "2026-01-02T03:04:05Z", 2000},
		"running": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseRunning}, working, "", "2026-01-02T03:04:05Z", 2000},
		"waiting": {
			v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Reason: "QuotaExceeded", Message: "of pods"}, working, "QuotaExceeded: of pods", "2026-01-02T03:04:05Z", 2000,
		},
		"for a field": {
			v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Reason: "R", Message: "Network.hosts[0]: x"}, working, "R: network_hosts[0]: x", "2026-01-02T03:04:05Z", 2000,
		},
		"for people": {
			v1alpha1.ToolCallStatus{Phase: v1alpha1.PhasePending, Reason: "AwaitingApproval", Message: "Set workingDir", Approval: asked, Conditions: unknown},
			working, `AwaitingApproval: 1 of 2 approvals, until 2026-01-02T03:05:00Z; ask ["the owners"]: Set working_dir`, "2026-01-02T03:05:00Z", 5000,
		},
		"succeeded": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseSucceeded}, completed, "", "2026-01-02T03:04:05Z", 0},
		"failed":    {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseFailed}, completed, "", "2026-01-02T03:04:05Z", 0},
		"denied":    {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseDenied}, completed, "", "2026-01-02T03:04:05Z", 0},
		"cancelled": {v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled}, cancelled, "", "2026-01-02T03:04:05Z", 0},
	} {
		call := newCall()
		call.CreationTimestamp, call.Status = metav1.NewTime(created), test.status
		got := describe(newID(call), call)
		if got.Status != test.state || got.StatusMessage != test.message || got.PollIntervalMs != test.poll || got.LastUpdatedAt != test.since || got.CreatedAt != "2026-01-02T03:04:05Z" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A form shows the whole of what was asked for, and there is none for what is longer.
func TestAFormShowsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	call := newCall()
	call.Status = v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhasePending, Reason: v1alpha1.ReasonAwaitingApproval,
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApproved, Status: metav1.ConditionUnknown}},
		Approval:   &v1alpha1.ApprovalStatus{Summary: "{}", Digest: approval.Digest("{}"), Causes: []string{"pushes"}, Messages: []string{"look at the branch"}},
	}
	for length, fits := range map[int]bool{2000: true, maxAsked: false} {
		call.Spec.Shell = &v1alpha1.ShellAction{Command: "git push #" + strings.Repeat("x", length) + "\u200dend"}
		if got := asks(call) && askedFor(call) != ""; got != fits || strings.Contains(statusMessage(call), "kubectl toolcall approve mcp-a.b") == fits {
			t.Errorf("%d bytes: asks %t, %s", length, got, statusMessage(call))
		}
		if !fits {
			continue
		}
		message := question(call).Message
		for _, part := range []string{"git push #" + strings.Repeat("x", length) + "<U+200D>end", "pushes", "look at the branch"} {
			if !strings.Contains(message, part) {
				t.Errorf("the form doesn't show %.20q", part)
			}
		}
	}
}

// The state of a task has the fields of the extension, and ttlMs also without a value.
func TestStatesOnTheWire(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer *mcp.CallToolResult
		err    error
		want   string
	}{
		"a result":        {answer: &mcp.CallToolResult{Content: []mcp.Content{}, IsError: true}, want: `"status":"completed",%"ttlMs":null,"result":{"content":[],"isError":true,"resultType":"complete"}`},
		"an error":        {err: errors.New("broken"), want: `"status":"failed",%"ttlMs":null,"error":{"code":-32603,"message":"broken"}`},
		"a protocol's":    {err: &jsonrpc.Error{Code: -32602, Message: "no"}, want: `"status":"failed",%"error":{"code":-32602,"message":"no"}`},
		"no valid result": {answer: &mcp.CallToolResult{StructuredContent: json.RawMessage("{")}, want: `"status":"failed",%"error":{"code":-32603`},
	} {
		call := newCall()
		call.Status.Phase = v1alpha1.PhaseSucceeded
		state := describe(newID(call), call)
		state.end(test.answer, test.err)
		raw, err := json.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(test.want, "%") {
			if !strings.Contains(string(raw), part) {
				t.Errorf("%s: %s doesn't have %s", name, raw, part)
			}
		}
	}
}

// Only what a client declares with the request counts.
func TestDeclaredCapabilities(t *testing.T) {
	t.Parallel()
	for declared, want := range map[string][2]bool{
		`null`: {}, `{}`: {}, `"x"`: {}, `{"extensions":[]}`: {}, `{"extensions":{"other":{}}}`: {},
		`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`: {true, false},
		`{"elicitation":{}}`:                         {false, true},
		`{"elicitation":{"url":{}}}`:                 {false, false},
		`{"elicitation":{"url":{},"form":{}}}`:       {false, true},
		`{"elicitation":null,"extensions":{"a":{}}}`: {},
	} {
		var value any
		if err := json.Unmarshal([]byte(declared), &value); err != nil {
			t.Fatal(err)
		}
		p := &params{}
		p.Meta = mcp.Meta{mcp.MetaKeyClientCapabilities: value}
		c := declaredBy(&mcp.ServerRequest[*params]{Params: p})
		if got := [2]bool{c.tasks(), c.forms()}; got != want {
			t.Errorf("%s: tasks and forms are %v, want %v", declared, got, want)
		}
	}
	if c := declaredBy(&mcp.ServerRequest[*params]{}); c.tasks() || c.forms() {
		t.Error("a request without parameters declares something")
	}
}

func TestTheHeaderNamesTheTask(t *testing.T) {
	t.Parallel()
	extra := func(values ...string) *mcp.RequestExtra {
		return &mcp.RequestExtra{Header: map[string][]string{nameHeader: values}}
	}
	p := &params{TaskID: "one"}
	for name, test := range map[string]struct {
		extra *mcp.RequestExtra
		ok    bool
	}{
		"no HTTP": {nil, true}, "the same": {extra("one"), true}, "with space": {extra(" one "), true}, "another": {extra("two"), false}, "none": {extra(), false},
	} {
		if err := checkName(test.extra, p); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
