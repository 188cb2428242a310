package subresources_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/audit"
)

// recorded are the records of all servers.
type recorded struct {
	mu  sync.Mutex
	all []audit.Record
}

func (r *recorded) add(one audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

// in are those of a namespace.
func (r *recorded) in(namespace string) []audit.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(one audit.Record) bool { return one.Namespace != namespace })
}

// Each transfer has one record, also one that is refused. A question about a file moves nothing.
func TestEachTransferIsRecorded(t *testing.T) {
	p := newPod(t)
	if r := p.put("file", "0123456789"); r.StatusCode != http.StatusCreated {
		t.Fatalf("upload: %d", r.StatusCode)
	}
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		_ = body(t, p.send(p.owner, method, p.fileURL("file", ""), nil, "Range", "bytes=2-4"))
	}
	if r := p.put("a.key", "secret"); r.StatusCode != http.StatusForbidden {
		t.Fatalf("what is denied: %d", r.StatusCode)
	}
	if r := p.send(p.owner, http.MethodDelete, p.fileURL("file", ""), nil); r.StatusCode != http.StatusNoContent {
		t.Fatalf("removal: %d", r.StatusCode)
	}
	p.background("typed", nil, "cat")
	if r := p.typed("typed", "&offset=0", "input"); r.StatusCode/100 != 2 {
		t.Fatalf("input: %d: %s", r.StatusCode, body(t, r))
	}
	var got []string
	eventually(t, func() error {
		got = nil
		for _, r := range p.records.in(p.namespace) {
			if r.Who.Username != "owner" || r.Kind != audit.KindTransfer || r.UID != string(p.session.UID) || r.Where.Pod != "pod" {
				t.Errorf("got %+v", r)
			}
			got = append(got, fmt.Sprintf("%s %s %d %s %d", r.What.Type, r.What.Path, r.Outcome.Status, r.Outcome.Reason, r.Outcome.Bytes))
			if (r.What.Call == "typed") != (r.What.Type == "Input") {
				t.Errorf("%s names the call %q", r.What.Type, r.What.Call)
			}
			if hash := r.What.SHA256; r.What.Path == "file" && r.What.Type != "Delete" && hash != sum([]byte("0123456789")) {
				t.Errorf("%s has the hash %q", r.What.Type, hash)
			}
		}
		if len(got) < 5 {
			return fmt.Errorf("got %q", got)
		}
		return nil
	})
	// A record is made when its answer has begun, so that the next one can come before it.
	slices.Sort(got)
	want := []string{
		"Delete file 204  0", "Download file 206  3", "Input ", "Upload a.key 403 " + v1alpha1.ReasonPathNotAllowed + " 0", "Upload file 201  10",
	}
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("got %q, want %q", got, want)
	}
}
