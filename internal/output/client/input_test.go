package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	outputclient "toolcall.dev/operator/internal/output/client"
)

// inputServer keeps a call's standard input as the aggregated API does, and has connections break.
type inputServer struct {
	random   *rand.Rand
	got      []byte
	isClosed bool
	// breaks is in how many of ten requests the answer, or the request, is lost; room how many bytes a request may add, 0 for any.
	breaks, room int
	requests     int
	// before is what another client does before a request.
	before func(s *inputServer)
}

var errLost = errors.New("connection reset by peer")

func (s *inputServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.requests++
	if s.before != nil {
		s.before(s)
	}
	if s.random.IntN(10) < s.breaks {
		return nil, errLost
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
	code := http.StatusOK
	switch {
	case err != nil || r.URL.Query().Get("call") != "c" || r.URL.Path != "/apis/subresources.toolcall.dev/v1alpha1/namespaces/n/toolsessions/s/proxy/input":
		return nil, fmt.Errorf("request %s", r.URL)
	case offset != len(s.got) || s.isClosed && len(raw) > 0:
		code = http.StatusConflict
	case s.room > 0 && len(raw) > s.room:
		s.got = append(s.got, raw[:s.room]...)
	default:
		s.got = append(s.got, raw...)
		s.isClosed = s.isClosed || r.URL.Query().Get("eof") == "true"
	}
	if s.random.IntN(10) < s.breaks {
		return nil, errLost
	}
	return answer(code, `{"kind":"Status","code":409}`, "Toolcall-Input-Offset", strconv.Itoa(len(s.got)))(r)
}

func sendTo(t *testing.T, ctx context.Context, server http.RoundTripper, from io.Reader) error {
	t.Helper()
	c, err := outputclient.NewForHTTPClient(&rest.Config{Host: "https://server"}, &http.Client{Transport: server})
	must(t, err)
	return c.SendInput(ctx, outputclient.Input{Namespace: "n", Session: "s", Call: "c"}, from)
}

// Each byte arrives once and in order, whatever is lost, behind what was sent before.
func TestInputArrivesOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before             string
		text               string
		breaks, room, seed int
	}{
		"nothing":                  {"", "", 0, 0, 1},
		"a line":                   {"", "hello\n", 0, 0, 1},
		"much":                     {"", string(numbered(300_000)), 0, 0, 1},
		"behind another's":         {"before\n", "hello\n", 0, 0, 1},
		"over breaks":              {"", string(numbered(300_000)), 4, 0, 2},
		"over breaks, behind":      {"before\n", string(numbered(300_000)), 4, 0, 3},
		"a process that is slow":   {"", string(numbered(20_000)), 0, 777, 4},
		"a slow one, over breaks":  {"", string(numbered(20_000)), 3, 777, 5},
		"a line, over many breaks": {"x", "hello\n", 7, 0, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := &inputServer{random: rand.New(rand.NewPCG(uint64(c.seed), 1)), got: []byte(c.before), breaks: c.breaks, room: c.room}
			err := sendTo(t, t.Context(), server, iotest.HalfReader(strings.NewReader(c.text)))
			if err != nil || string(server.got) != c.before+c.text || !server.isClosed {
				t.Errorf("%s: %d of %d bytes, closed %t, %v", name, len(server.got)-len(c.before), len(c.text), server.isClosed, err)
			}
		})
	}
}

// What can't arrive is said, and not sent for ever.
func TestInputThatIsNotTaken(t *testing.T) {
	t.Parallel()
	refuse := func(code int, headers ...string) http.RoundTripper {
		return &answers{given: []func(*http.Request) (*http.Response, error){answer(code, fmt.Sprintf(`{"kind":"Status","code":%d,"message":"no"}`, code), headers...)}}
	}
	other := &inputServer{random: rand.New(rand.NewPCG(1, 1))}
	other.before = func(s *inputServer) {
		if s.requests == 3 {
			s.got = append(s.got, "another's text"...)
		}
	}
	closed := &inputServer{random: rand.New(rand.NewPCG(1, 1))}
	closed.before = func(s *inputServer) { s.isClosed = s.requests > 1 }
	for name, c := range map[string]struct {
		server http.RoundTripper
		is     func(error) bool
	}{
		"a call that takes none":     {refuse(http.StatusConflict), func(err error) bool { return errors.Is(err, outputclient.ErrInputClosed) }},
		"no right":                   {refuse(http.StatusForbidden), func(err error) bool { return strings.Contains(err.Error(), "no") }},
		"an answer without sense":    {refuse(http.StatusOK), func(err error) bool { return strings.Contains(err.Error(), "Toolcall-Input-Offset") }},
		"another client at the time": {other, func(err error) bool { return errors.Is(err, outputclient.ErrInputTaken) }},
		"a call that closed it":      {closed, func(err error) bool { return errors.Is(err, outputclient.ErrInputClosed) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := sendTo(t, t.Context(), c.server, iotest.OneByteReader(strings.NewReader("text")))
			if err == nil || !c.is(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := sendTo(t, ctx, refuse(http.StatusTooManyRequests, "Retry-After", "1"), strings.NewReader("text")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a process that takes nothing: %v", err)
		}
		if err := sendTo(t, t.Context(), &inputServer{random: rand.New(rand.NewPCG(1, 1))}, iotest.ErrReader(errLost)); !errors.Is(err, errLost) {
			t.Errorf("standard input that breaks: %v", err)
		}
	})
}
