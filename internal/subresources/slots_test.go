package subresources

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/fair"
)

func newTestSlots(most int) *slots {
	return newSlots(context.Background(), "transfers", most)
}

func TestRequestsOfAUserANamespaceAndAllAreBounded(t *testing.T) {
	t.Parallel()
	const most = 16
	for name, tc := range map[string]struct {
		bound int
		who   func(i int) (user, namespace string)
	}{
		"a user":      {most / 4, func(i int) (string, string) { return "user", fmt.Sprint(i) }},
		"a namespace": {most / 2, func(i int) (string, string) { return fmt.Sprint(i), "ns" }},
		"all":         {most, func(i int) (string, string) { return fmt.Sprint(i), fmt.Sprint(i) }},
	} {
		s := newTestSlots(most)
		var held []*slot
		for i := range tc.bound {
			user, namespace := tc.who(i)
			one, err := s.enter(user, namespace, func() { t.Errorf("%s: %d had to give way", name, i) })
			if err != nil {
				t.Fatalf("%s: %d: %v", name, i, err)
			}
			held = append(held, one)
		}
		user, namespace := tc.who(tc.bound)
		_, err := s.enter(user, namespace, nil)
		if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds != retryAfterSeconds {
			t.Errorf("%s: one more: %v", name, err)
		}
		for _, one := range held {
			one.leave()
			one.leave()
		}
		for i := range tc.bound {
			user, namespace := tc.who(i)
			if _, err := s.enter(user, namespace, func() { t.Errorf("%s: %d had to give way", name, i) }); err != nil {
				t.Fatalf("%s: %d, when all have left: %v", name, i, err)
			}
		}
	}
}

func TestTransfersOfASessionAreBounded(t *testing.T) {
	t.Parallel()
	p := &proxy{sessions: fair.NewCounter[types.NamespacedName](fair.Unbounded, maxTransfersPerSession)}
	session := types.NamespacedName{Namespace: "ns", Name: "session"}
	var leave []func()
	for range maxTransfersPerSession {
		l, err := p.enterSession(session)
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if _, err := p.enterSession(session); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one more: %v", err)
	}
	for _, l := range leave {
		l()
	}
	if p.sessions.Used() != 0 {
		t.Errorf("left are %d", p.sessions.Used())
	}
}

// Two namespaces hold all there is. Every other namespace gets some nevertheless.
func TestTheNewestRequestOfTheNamespaceThatHasMostGivesWay(t *testing.T) {
	t.Parallel()
	const most = 8
	s := newTestSlots(most)
	var stopped []string
	held := map[string]*slot{}
	enter := func(name, namespace string) error {
		one, err := s.enter(name, namespace, func() { stopped = append(stopped, name) })
		held[name] = one
		return err
	}
	for i := range most / 2 {
		for _, namespace := range []string{"a", "b"} {
			if err := enter(fmt.Sprint(namespace, i), namespace); err != nil {
				t.Fatal(err)
			}
		}
	}
	// One of b ends, and one of c begins: a has most.
	held["b0"].leave()
	if err := enter("c0", "c"); err != nil || len(stopped) > 0 {
		t.Fatal(err, stopped)
	}
	if err := enter("c1", "c"); err != nil || strings.Join(stopped, " ") != "a3" {
		t.Errorf("%v, stopped: %v", err, stopped)
	}
	if err := held["a3"].orGaveWay(io.ErrUnexpectedEOF); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "gave way") {
		t.Errorf("it is told %v", err)
	}
	held["a3"].leave()
	// Each of three has as much as the next one would have: 3, 3, 2.
	if err := enter("c2", "c"); !apierrors.IsTooManyRequests(err) || len(stopped) != 1 {
		t.Errorf("%v, stopped: %v", err, stopped)
	}
	// Two for the last ones.
	for _, namespace := range []string{"d", "e"} {
		if err := enter(namespace, namespace); err != nil {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	// Of four and three, two are left of each.
	if all := strings.Join(stopped, " "); len(stopped) != 3 || strings.Count(all, "a") != 2 || strings.Count(all, "b") != 1 {
		t.Errorf("stopped: %v", stopped)
	}
}

// Four users hold all there is, with one request in each namespace. Another user gets some nevertheless.
func TestTheNewestRequestOfTheUserWhoHasMostGivesWay(t *testing.T) {
	t.Parallel()
	const most = 16
	s := newTestSlots(most)
	stopped := 0
	for i := range most {
		if _, err := s.enter(fmt.Sprint("user", i%4), fmt.Sprint("namespace", i), func() { stopped++ }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if _, err := s.enter("newcomer", fmt.Sprint("own", i), nil); err != nil || stopped != i+1 {
			t.Errorf("%d: %v, %d stopped", i, err, stopped)
		}
	}
	if _, err := s.enter("newcomer", "own", nil); !apierrors.IsTooManyRequests(err) {
		t.Errorf("more than its share: %v", err)
	}
}

// slottedServer serves uploads, downloads, and answers that wait, with slots. The path is the namespace, the query what is done.
func slottedServer(t *testing.T, s *slots, entered chan<- string) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admit(w, r, r.URL.String(), r.URL.Path, func(conn *peer, r *http.Request) error {
			return serveSlotted(conn, r, entered)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// Each waits for its client when it has to give way.
func TestARequestThatGivesWayEnds(t *testing.T) {
	t.Parallel()
	for what, check := range map[string]func(t *testing.T, response *http.Response){
		"upload": func(t *testing.T, response *http.Response) {
			said, _ := io.ReadAll(response.Body)
			if response.StatusCode != http.StatusTooManyRequests || !bytes.Contains(said, []byte("gave way")) {
				t.Errorf("an upload is told %d %s", response.StatusCode, said)
			}
		},
		"download": func(t *testing.T, response *http.Response) {
			if _, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Error("a download ends as if it were whole")
			}
		},
		"follow": func(t *testing.T, response *http.Response) {
			if got, err := io.ReadAll(response.Body); err != nil || string(got) != "line\n" {
				t.Errorf("a follow ends with %q, %v", got, err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newTestSlots(8)
			s.budget = fair.NewBudget[string](fair.Limits{Total: 2, Each: []int{2, 2}})
			entered := make(chan string, 1)
			server := slottedServer(t, s, entered)
			second := make(chan *http.Response, 1)
			for _, kind := range []string{"first", "second"} {
				body, sender := io.Pipe()
				t.Cleanup(func() { sender.Close() })
				go func() { _, _ = sender.Write([]byte("x")) }()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/a?do="+what+"&kind="+kind, body)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					response, err := server.Client().Do(request)
					if kind == "second" {
						if err != nil {
							t.Error(err)
						}
						second <- response
					}
				}()
				<-entered
			}
			var begun *http.Response
			if what != "upload" {
				begun = <-second
			}
			response, err := server.Client().Get(server.URL + "/b")
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatal(err, response)
			}
			response.Body.Close()
			if what == "upload" {
				begun = <-second
			}
			if begun != nil {
				defer begun.Body.Close()
				check(t, begun)
			}
		})
	}
}

func serveSlotted(conn *peer, r *http.Request, entered chan<- string) (err error) {
	switch r.URL.Query().Get("do") {
	case "upload":
		_, _ = conn.Read(make([]byte, 1))
		entered <- r.URL.String()
		_, err = io.Copy(io.Discard, conn)
		return err
	case "download":
		conn.Header().Set("Content-Length", "1000000000")
		entered <- r.URL.String()
		for err == nil {
			_, err = conn.Write(make([]byte, 64<<10))
		}
	case "follow":
		_, _ = io.WriteString(conn, "line\n")
		_ = http.NewResponseController(conn).Flush()
		entered <- r.URL.String()
		<-r.Context().Done()
	}
	return nil
}
