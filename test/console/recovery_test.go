package console

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
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
	p.awaitText("#state", "5 calls, live.")
	for i := range 5 {
		p.awaitRow(fmt.Sprint("call-", i), "Waiting")
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
	p.awaitText("#timing", "1.60 s until finished")
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
	p.awaitRow("a", "Waiting")
	p.awaitText("#state", "1 call, live.")
}

// expired answers the next watch, once it is allowed to, as one that can't go on from where it was.
func expired(allowed *atomic.Bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "true" || !allowed.CompareAndSwap(true, false) {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
		return true
	}
}

// A call that is deleted while the page is disconnected for long is told from one that goes on.
func TestACallThatIsDeletedUnseen(t *testing.T) {
	var missed, held atomic.Bool
	f := newFixture(t, expired(&missed), func(w http.ResponseWriter, r *http.Request) bool {
		return held.Load() && away(new(atomic.Bool), func(*http.Request) bool { return true })(w, r)
	})
	call := f.create("a", "true")
	status := succeeded()
	status.Phase, status.Timings.FinishedMilliseconds = v1alpha1.PhaseRunning, nil
	f.report(call, status)
	p := f.open("/#/call/" + f.namespace + "/a")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "Live.")
	p.awaitText("#timing", "running")
	held.Store(true)
	f.console.CloseClientConnections()
	p.awaitText("#state", "It is tried again.")
	must(t, f.admin.Delete(t.Context(), call))
	missed.Store(true)
	held.Store(false)
	p.awaitText("#state", "The call was deleted.")
	// The clock has no turn after that: what it draws is made anew each time.
	p.eval("(() => { const b = document.querySelector('.bar'); return new Promise((ok, no) => setTimeout(() => b.isConnected ? ok() : no(new Error('the time goes on')), 1500)); })()", nil)
}

// brokenAlways breaks the requests that a function chooses after the answer began.
func brokenAlways(chosen func(*http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !chosen(r) {
			return false
		}
		w.Header().Set("Toolcall-Offset", r.URL.Query().Get("offset"))
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// What is cut now and then, as by the time limit of an ingress, goes on at once each time.
func TestConnectionsThatAreCut(t *testing.T) {
	for name, chosen := range map[string]func(*http.Request) bool{
		"a watch":  func(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" },
		"a stream": func(r *http.Request) bool { return r.URL.Query().Get("follow") == "true" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, brokenAlways(chosen))
			call := f.create("a", "true")
			outputs.Add(call, output.Stdout)
			outputs.Add(call, output.Stderr).Finish()
			p := f.open("/#/call/" + f.namespace + "/a")
			// The page's clock goes by minutes, and it doesn't wait for as long as it wants to.
			p.eval(`(() => { window.waits = []; const now = Date.now, wait = setTimeout; let minutes = 0; Date.now = () => now() + 60000 * minutes++;
				window.setTimeout = (f, n) => { if (n >= 300) { window.waits.push(n); n = 20; } return wait(f, n); }; })()`, nil)
			p.signIn(f.viewer(), f.namespace)
			// Each of the two streams waits as little as this once, if it waits longer each time.
			p.await("window.waits.filter((n) => n < 700).length > 4")
		})
	}
}

// Where objects are so large that the console breaks their list off, fewer of them come at a time.
func TestListsThatAreTooLong(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("limit") != "500" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Table","rows":[`, strings.Repeat(" ", 64<<10))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for i := range 41 {
		f.create(fmt.Sprint("call-", i), "true")
	}
	p := f.open("/")
	p.signIn(f.viewer(), f.namespace)
	p.awaitText("#state", "41 calls, live.")
}
