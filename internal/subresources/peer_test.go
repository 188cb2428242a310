package subresources

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
)

// deadlines is a client that knows how long it has.
type deadlines struct {
	*httptest.ResponseRecorder
	now time.Time
	// had are those that the writes had.
	had []time.Time
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.now = t
	return nil
}

func (d *deadlines) Write(p []byte) (int, error) {
	d.had = append(d.had, d.now)
	return d.ResponseRecorder.Write(p)
}

// someLeader is at an address.
type someLeader string

func (someLeader) IsHere() bool                              { return false }
func (l someLeader) Address(context.Context) (string, error) { return string(l), nil }

// exchangeBy is a user's request that was let in.
func exchangeBy(name string, w http.ResponseWriter, r *http.Request) *exchange {
	return &exchange{
		peer: &peer{ResponseWriter: w, control: http.NewResponseController(w), slot: &slot{}}, r: r, who: &user.DefaultInfo{Name: name},
	}
}

// passingOn is a forwarder to a leader that answers each request in three parts.
func passingOn(t *testing.T) *forwarder {
	t.Helper()
	leader := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 3 {
			_, _ = w.Write([]byte("a part"))
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(leader.Close)
	f := &forwarder{
		leader:    someLeader(leader.Listener.Addr().String()),
		transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		moves:     neverMove,
	}
	t.Cleanup(f.transport.CloseIdleConnections)
	return f
}

// A client that takes nothing is cut off, whoever answers.
func TestEveryWriteHasATime(t *testing.T) {
	t.Parallel()
	passing := passingOn(t)
	finished := &v1alpha1.ToolCall{Status: v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseSucceeded, Stdout: "a part", Streams: &v1alpha1.StreamsStatus{Stdout: v1alpha1.StreamStatus{Bytes: 6}},
	}}
	for name, tc := range map[string]struct {
		forwarder *forwarder
		call      *v1alpha1.ToolCall
		query     string
	}{
		"what is here":         {nil, finished, ""},
		"what is followed":     {nil, finished, "follow=true"},
		"what the leader says": {passing, &v1alpha1.ToolCall{}, "follow=true"},
	} {
		to := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := asked(tc.query)
		query, err := parseLogRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		l := &logs{forwarder: tc.forwarder, clock: clock.RealClock{}}
		a := &answer{logs: l, exchange: exchangeBy("somebody", to, r), call: tc.call, query: query}
		if err := a.send(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, deadline := range to.had {
			if left := time.Until(deadline); left <= 0 || left > writeTimeout {
				t.Errorf("%s: a write has %s", name, left)
			}
		}
		if len(to.had) == 0 || !to.now.IsZero() {
			t.Errorf("%s: %d writes, and then the deadline is %s", name, len(to.had), to.now)
		}
	}
}

// So is one whose file a replica passes on.
func TestEveryWriteOfAFileThatIsPassedOnHasATime(t *testing.T) {
	t.Parallel()
	p := &proxy{forwarder: passingOn(t), clock: clock.RealClock{}}
	to := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	q := exchangeBy("u", to, httptest.NewRequest(http.MethodGet, "/?path=x", nil))
	q.object, q.path = types.NamespacedName{Namespace: "n", Name: "s"}, "files"
	err := p.serve(q)
	if err != nil || to.Body.Len() != 18 || len(to.had) == 0 {
		t.Fatal(err, to.Body.Len(), to.had)
	}
	for _, deadline := range to.had {
		if deadline.IsZero() {
			t.Error("a write to the client has no deadline")
		}
	}
}
