package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
)

// answers is a server that gives each answer once, and the last one for ever.
type answers struct {
	given []func(*http.Request) (*http.Response, error)
	asked []time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, time.Now())
	return a.given[min(len(a.asked), len(a.given))-1](r)
}

func answer(code int, body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

func stream(body string, headers ...string) func(*http.Request) (*http.Response, error) {
	return answer(http.StatusOK, body, append([]string{"Toolcall-Uid", "u", "Toolcall-Offset", "0", "Toolcall-Bytes", "2", "Toolcall-Complete", "true"}, headers...)...)
}

func broken(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

// copyOf reads from a server of the test.
func copyOf(t *testing.T, ctx context.Context, server *answers, q outputclient.Query) (*kept, error) {
	t.Helper()
	c, err := outputclient.NewForHTTPClient(&rest.Config{Host: "https://server"}, &http.Client{Transport: server})
	must(t, err)
	q.Namespace, q.Name, q.Stream = "n", "c", output.Stdout
	got := &kept{}
	_, err = c.Copy(ctx, q, got.sink())
	return got, err
}

// A server that asks for a pause gets it, within bounds; a notice comes once.
func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answers{given: []func(*http.Request) (*http.Response, error){
			answer(http.StatusServiceUnavailable, "no leader", "Retry-After", "7"),
			answer(http.StatusTooManyRequests, "too many", "Retry-After", "3"),
			answer(http.StatusServiceUnavailable, "no leader", "Retry-After", "999999"),
			answer(http.StatusServiceUnavailable, "no leader", "Retry-After", "-1"),
			broken,
			stream("hi"),
		}}
		got, err := copyOf(t, t.Context(), server, outputclient.Query{Follow: true})
		if err != nil || got.String() != "hi" || got.retries != 1 {
			t.Errorf("%q, %d retries, %v", got.String(), got.retries, err)
		}
		for i, want := range []time.Duration{7 * time.Second, 3 * time.Second, 30 * time.Second} {
			if pause := server.asked[i+1].Sub(server.asked[i]); pause != want {
				t.Errorf("pause %d is %s, not %s", i, pause, want)
			}
		}
	})
}

// Without patience a copy waits as long as its context; with it, the error comes when that is over.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answers{given: []func(*http.Request) (*http.Response, error){broken}}
		start := time.Now()
		_, err := copyOf(t, t.Context(), server, outputclient.Query{Patience: time.Minute})
		if err == nil || !strings.Contains(err.Error(), "connection refused") || time.Since(start) > time.Minute || time.Since(start) < 50*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		server = &answers{given: []func(*http.Request) (*http.Response, error){broken}}
		_, err = copyOf(t, ctx, server, outputclient.Query{Follow: true})
		// Every 5 s at most, and every 2.5 s at least.
		if !errors.Is(err, context.DeadlineExceeded) || len(server.asked) < 720 || len(server.asked) > 1500 {
			t.Errorf("%v, asked %d times", err, len(server.asked))
		}
	})
}

// A server that ends its answers at once isn't asked without a pause.
func TestEmptyAnswersAreNotAStorm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		server := &answers{given: []func(*http.Request) (*http.Response, error){stream("", "Toolcall-Complete", "false", "Toolcall-Bytes", "0")}}
		_, err := copyOf(t, ctx, server, outputclient.Query{Follow: true})
		if !errors.Is(err, context.DeadlineExceeded) || len(server.asked) > 1500 {
			t.Errorf("%v, asked %d times", err, len(server.asked))
		}
	})
}

// What isn't an answer of the API never counts as bytes of the stream.
func TestStrangeAnswers(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]func(*http.Request) (*http.Response, error){
		"a page":                 answer(http.StatusOK, "<html>"),
		"another part":           stream("xx", "Toolcall-Offset", "7"),
		"a negative length":      stream("xx", "Toolcall-Bytes", "-1"),
		"a number without sense": stream("xx", "Toolcall-Offset", "0x0"),
	} {
		synctest.Test(t, func(t *testing.T) {
			got, err := copyOf(t, t.Context(), &answers{given: []func(*http.Request) (*http.Response, error){given}}, outputclient.Query{Patience: time.Minute})
			if err == nil || got.Len() > 0 {
				t.Errorf("%s: %q, %v", name, got.String(), err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := copyOf(t, t.Context(), &answers{given: []func(*http.Request) (*http.Response, error){answer(http.StatusFound, "")}}, outputclient.Query{})
		if err == nil || apierrors.IsNotFound(err) {
			t.Errorf("a redirection to nowhere: %v", err)
		}
	})
}

// Later requests are for the call that the first one was answered for, and not for another of its name.
func TestLaterRequestsNameTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &answers{given: []func(*http.Request) (*http.Response, error){
			stream("hi", "Toolcall-Complete", "false"),
			func(r *http.Request) (*http.Response, error) {
				if q := r.URL.Query(); q.Get("uid") != "u" || q.Get("offset") != "2" {
					t.Errorf("request %s", r.URL)
				}
				return stream("", "Toolcall-Offset", "2")(r)
			},
		}}
		if got, err := copyOf(t, t.Context(), server, outputclient.Query{Follow: true}); err != nil || got.String() != "hi" {
			t.Errorf("%q, %v", got.String(), err)
		}
	})
}

// More than was asked for is an error, and not asked for again.
func TestAnAnswerThatIsTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		server := &answers{given: []func(*http.Request) (*http.Response, error){stream("hi")}}
		if _, err := copyOf(t, ctx, server, outputclient.Query{Limit: 1}); err == nil || len(server.asked) != 1 {
			t.Errorf("asked %d times: %v", len(server.asked), err)
		}
	})
}

// A part that grows while it is passed over is one part.
func TestAMissingPartThatGrows(t *testing.T) {
	t.Parallel()
	gone := func(next string) func(*http.Request) (*http.Response, error) {
		return answer(http.StatusGone, `{"kind":"Status","code":410,"details":{"causes":[{"reason":"NextOffset","message":"`+next+`"}]}}`)
	}
	synctest.Test(t, func(t *testing.T) {
		server := &answers{given: []func(*http.Request) (*http.Response, error){
			gone("5"), gone("9"), stream("hi", "Toolcall-Offset", "9", "Toolcall-Bytes", "11"),
		}}
		got, err := copyOf(t, t.Context(), server, outputclient.Query{Follow: true})
		if err != nil || got.String() != "hi" || len(got.missing) != 1 || got.missing[0] != "0-9 at 0" {
			t.Errorf("%q, missing %q, %v", got.String(), got.missing, err)
		}
		// One that doesn't lead on is an error, and not asked for ever.
		if _, err := copyOf(t, t.Context(), &answers{given: []func(*http.Request) (*http.Response, error){gone("0")}}, outputclient.Query{Follow: true}); err == nil {
			t.Error("no error")
		}
	})
}
