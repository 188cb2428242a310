package subresources_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestRequestsAreInTheAPIServersAudit(t *testing.T) {
	p := newPod(t)
	p.finished("call", "x")
	p.bind("auditor", "toolcall-viewer")
	eventually(t, func() error {
		if r := p.ask(p.as("auditor"), http.MethodGet, p.pathOf("call", "")); r.StatusCode != http.StatusOK {
			return fmt.Errorf("answer %d", r.StatusCode)
		}
		return nil
	})
	if r := p.put("dir/a file", "content"); r.StatusCode != http.StatusCreated {
		t.Fatalf("upload: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodGet, p.fileURL("dir/a file", ""), nil); r.StatusCode != http.StatusOK || string(body(t, r)) != "content" {
		t.Fatalf("download: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodDelete, p.fileURL("dir/a file", ""), nil); r.StatusCode != http.StatusNoContent {
		t.Fatalf("removal: %d", r.StatusCode)
	}
	p.background("typed", nil, "cat")
	if r := p.typed("typed", "&offset=0", "secret input"); r.StatusCode/100 != 2 {
		t.Fatalf("input: %d: %s", r.StatusCode, body(t, r))
	}
	if r := p.ask(p.owner, http.MethodGet, p.pathOf("call", "artifact=out")); r.StatusCode != http.StatusNotFound {
		t.Fatalf("an artifact that isn't there: %d", r.StatusCode)
	}
	const path = "/proxy/files?path=dir%2Fa+file"
	for _, want := range [][]string{
		{`"username":"auditor"`, `"subresource":"log"`, `"verb":"get"`, `"code":20`},
		{`"username":"owner"`, `"subresource":"proxy"`, `"verb":"update"`, path, `"code":20`},
		{`"username":"owner"`, `"subresource":"proxy"`, `"verb":"get"`, path, `"code":20`},
		{`"username":"owner"`, `"subresource":"proxy"`, `"verb":"delete"`, path, `"code":20`},
		{`"username":"owner"`, `"subresource":"proxy"`, `"verb":"create"`, "/proxy/input?call=typed", `"code":20`},
		{`"username":"owner"`, `"subresource":"log"`, `"verb":"get"`, "artifact=out", `"code":404`},
	} {
		// The record may follow the answer.
		eventually(t, func() error { return p.findAudited(append(want, p.namespace, `"stage":"ResponseComplete"`)) })
	}
	if err := p.findAudited([]string{"secret input"}); err == nil {
		t.Error("the record has the input")
	}
}

// findAudited says that the API server has no record with all of the texts.
func (s *space) findAudited(texts []string) error {
	raw, err := os.ReadFile(s.auditLog)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(raw)) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return nil
		}
	}
	return fmt.Errorf("the audit log has no request with %q", texts)
}
