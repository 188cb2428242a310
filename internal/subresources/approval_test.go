package subresources_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/subresources"
)

// What the policy has a person approve isn't done by a request that nobody is asked about, whatever it is for.
func TestWhatNeedsApprovalIsNotTransferred(t *testing.T) {
	p := newPod(t, func(spec *v1alpha1.ExecutionPolicySpec) {
		spec.Approvals = []v1alpha1.ApprovalRequirement{{Name: "writes", Match: v1alpha1.ApprovalMatch{Tools: []string{"file.write", "cat"}}}}
	})
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		r := p.send(p.owner, method, p.fileURL("file", ""), strings.NewReader("x"))
		if status := statusOf(t, r); r.StatusCode != http.StatusForbidden || !strings.Contains(status.Message, "create a ToolCall with a file action") {
			t.Errorf("%s: %d: %s", method, r.StatusCode, status.Message)
		}
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL(".", "&archive=tar"), nil); r.StatusCode != http.StatusOK {
		t.Errorf("a read, which needs no approval: %d", r.StatusCode)
	}
	p.background("cat", nil, "cat")
	if r := p.typed("cat", "&offset=0", "x"); r.StatusCode != http.StatusForbidden || !strings.Contains(statusOf(t, r).Message, "spec.stdin") {
		t.Errorf("input: %d", r.StatusCode)
	}
	if names := p.names(); names != "" {
		t.Errorf("there are %s", names)
	}
}

// Rules judge paths, and not what is in an archive.
func TestArchivesAreRefusedWhereThePolicyHasRules(t *testing.T) {
	p := newPod(t, func(spec *v1alpha1.ExecutionPolicySpec) {
		spec.Rules = []v1alpha1.PolicyRule{{Name: "no-secrets", Expression: `action.path.endsWith("secret")`, Effect: v1alpha1.RuleDeny}}
	})
	if r := p.put("file", "x"); r.StatusCode != http.StatusCreated {
		t.Errorf("a file: %d: %s", r.StatusCode, body(t, r))
	}
	if r := p.put("secret", "x"); r.StatusCode != http.StatusForbidden {
		t.Errorf("a file that a rule denies: %d", r.StatusCode)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut} {
		r := p.send(p.owner, method, p.fileURL("dir", "&archive=tar"), strings.NewReader(""))
		if status := statusOf(t, r); r.StatusCode != http.StatusForbidden || !strings.Contains(status.Message, "archive") {
			t.Errorf("%s: %d: %s", method, r.StatusCode, status.Message)
		}
	}
}

// A rule that looks at the content would see none.
func TestUploadsAreRefusedWhereARuleLooksAtTheContent(t *testing.T) {
	p := newPod(t, func(spec *v1alpha1.ExecutionPolicySpec) {
		expression := `has(call.spec.file) && has(call.spec.file.content) && call.spec.file.content.contains("PRIVATE KEY")`
		spec.Rules = []v1alpha1.PolicyRule{
			{Name: "no-content", Expression: `action.path.contains("content")`, Effect: v1alpha1.RuleDeny},
			{Name: "no-keys", Expression: expression, Effect: v1alpha1.RuleDeny},
		}
	})
	if r := p.put("file", "PRIVATE KEY"); r.StatusCode != http.StatusForbidden || !strings.Contains(statusOf(t, r).Message, "no-keys") {
		t.Errorf("an upload: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("none", ""), nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a download: %d", r.StatusCode)
	}
}

// Others than the users of a session can't fill the audit log.
func TestNoRecordForThoseWhoMayNotUseTheSession(t *testing.T) {
	p := newPod(t)
	p.bind("other", "toolcall-user")
	for _, path := range []string{p.fileURL("file", ""), p.fileURL("", "")} {
		eventually(t, func() error {
			r := p.send(p.as("other"), http.MethodGet, path, nil)
			if raw := string(body(t, r)); r.StatusCode != http.StatusBadRequest && !strings.Contains(raw, "SessionNotAllowed") {
				return errors.New(raw)
			}
			return nil
		})
	}
	absent := fmt.Sprintf("/apis/%s/namespaces/%s/toolsessions/none/proxy/files?path=x", subresources.GroupVersion, p.namespace)
	if r := p.send(p.owner, http.MethodGet, absent, nil); r.StatusCode != http.StatusNotFound {
		t.Errorf("a session that isn't there: %d", r.StatusCode)
	}
	// The record of this one comes after theirs.
	if r := p.put("file", "x"); r.StatusCode != http.StatusCreated {
		t.Fatalf("upload: %d", r.StatusCode)
	}
	eventually(t, func() error {
		if len(p.records.in(p.namespace)) == 0 {
			return errors.New("no record yet")
		}
		return nil
	})
	if got := p.records.in(p.namespace); len(got) != 1 || got[0].What.Type != "Upload" {
		t.Errorf("got %+v", got)
	}
}
