package console

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"toolcall.dev/operator/internal/output"
)

// A list that comes in pages is shown whole.
func TestListsInPages(t *testing.T) {
	var pages atomic.Int32
	f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if query := r.URL.Query(); query.Get("limit") == "500" {
			query.Set("limit", "2")
			r.URL.RawQuery = query.Encode()
			pages.Add(1)
		}
		return false
	})
	for i := range 5 {
		f.create(fmt.Sprint("call-", i), "true")
	}
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "5, live.")
	for i := range 5 {
		p.awaitRow(fmt.Sprint("call-", i), "Pending")
	}
	if pages.Load() != 3 {
		t.Errorf("%d pages were read", pages.Load())
	}
}

// away answers requests that a function chooses as while something is away, until that is over.
func away(over *atomic.Bool, chosen func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if over.Load() || !chosen(r) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"kind":"Status","code":503,"reason":"ServiceUnavailable","message":"the output store is away","details":{"retryAfterSeconds":1}}`)
		return true
	}
}

// While the output store is away, the page says so and tries again; the rest of the call is there.
func TestOutputThatIsAwayForAMoment(t *testing.T) {
	var over atomic.Bool
	f := newFixture(t, away(&over, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/log") }))
	call := f.create("a", "make all")
	stdout := outputs.Add(call, output.Stdout)
	fmt.Fprint(stdout, "there again")
	stdout.Finish()
	outputs.Add(call, output.Stderr).Finish()
	f.report(call, succeeded())
	p := f.open("/#/call/" + f.namespace + "/a")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#output", "the output store is away")
	p.awaitText("#output", "It is tried again.")
	p.awaitText("#timing", "1.60 s running")
	over.Store(true)
	p.awaitText("#stdout", "there again")
	p.awaitText("#output", "11 B, complete.")
}

// The same goes for the API server.
func TestAListThatIsAwayForAMoment(t *testing.T) {
	var over atomic.Bool
	f := newFixture(t, away(&over, func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/apis/") }))
	f.create("a", "true")
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "What is needed is away for the moment.")
	over.Store(true)
	p.awaitRow("a", "Pending")
	p.awaitText("#state", "1, live.")
}
