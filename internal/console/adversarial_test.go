package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// newConsole serves a console whose API server is a function: what no real one answers with.
func newConsole(t *testing.T, upstream http.HandlerFunc) *httptest.Server {
	t.Helper()
	api := newUpstream(t, upstream)
	conf := &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	console, _ := serve(t, conf, testOptions())
	return console
}

func newUpstream(t *testing.T, upstream http.HandlerFunc) *httptest.Server {
	t.Helper()
	api := httptest.NewUnstartedServer(upstream)
	api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	api.StartTLS()
	t.Cleanup(api.Close)
	return api
}

func never(t *testing.T) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the API server got %s %s", r.Method, r.URL) }
}

func TestOnlyReadsOfTheConsolesOwnPagePass(t *testing.T) {
	t.Parallel()
	console := newConsole(t, never(t))
	console.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	token := withToken("abc")
	for name, c := range map[string]struct {
		path    string
		code    int
		changes []request
	}{
		"another method":          {calls, 405, []request{token, func(r *http.Request) { r.Method = http.MethodPost }}},
		"HEAD":                    {calls, 405, []request{token, func(r *http.Request) { r.Method = http.MethodHead }}},
		"a write of a decision":   {decisions + "/a", 405, []request{token, func(r *http.Request) { r.Method = http.MethodPost }}},
		"a change of one":         {decisions + "/a", 405, []request{token, func(r *http.Request) { r.Method = http.MethodPatch }}},
		"a removal of them":       {decisions, 405, []request{token, func(r *http.Request) { r.Method = http.MethodDelete }}},
		"a preflight":             {calls, 405, []request{func(r *http.Request) { r.Method = http.MethodOptions }, withHeader("Origin", "https://evil.test")}},
		"a method of WebDAV":      {calls, 405, []request{token, func(r *http.Request) { r.Method = "PROPFIND" }}},
		"an override of it":       {calls + "?_method=DELETE", 400, []request{token}},
		"another host":            {calls, 421, []request{token, func(r *http.Request) { r.Host = "evil.test" }}},
		"another host's page":     {"/", 421, []request{func(r *http.Request) { r.Host = "127.0.0.1.evil.test:8443" }}},
		"another origin":          {calls, 403, []request{token, withHeader("Origin", "https://evil.test")}},
		"no origin's page":        {calls, 403, []request{token, withHeader("Origin", "null")}},
		"another site's page":     {calls, 403, []request{token, withHeader("Sec-Fetch-Site", "cross-site")}},
		"a sibling's page":        {calls, 403, []request{token, withHeader("Sec-Fetch-Site", "same-site")}},
		"a typed address":         {calls, 403, []request{token, withHeader("Sec-Fetch-Site", "none")}},
		"a body":                  {calls, 400, []request{token, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("a")) }}},
		"two tokens":              {calls, 401, []request{token, token}},
		"basic authentication":    {calls, 401, []request{withHeader("Authorization", "Basic YTpi")}},
		"a token in the query":    {calls + "?access_token=abc", 401, nil},
		"a token in a cookie":     {calls, 401, []request{withHeader("Cookie", "token=abc")}},
		"a token with a space":    {calls, 401, []request{withToken("a b")}},
		"a token of 17 KiB":       {calls, 401, []request{withToken(strings.Repeat("a", 17<<10))}},
		"a file above the page":   {"/..%2f..%2fetc/passwd", 404, nil},
		"a folder of the page":    {"/static/", 404, nil},
		"a source file":           {"/doc.go", 404, nil},
		"an escaped page":         {"/%6dain.js", 404, nil},
		"the prefix of the reads": {"/apis", 404, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := send(t, console, c.path, c.changes...).StatusCode; got != c.code {
				t.Errorf("the code is %d, not %d", got, c.code)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8443": true, "localhost.": true, "127.0.0.1:1": true, "[::1]:8443": true, "[::1]": true, "::1": true,
		"": false, "localhost.evil.test": false, "evil.test#localhost": false, "localhost@evil.test": false, "127.0.0.1.evil.test": false, "[::1": true, "localhost:8443:1": false,
	} {
		if got := isHost(host, []string{"localhost", "127.0.0.1", "::1"}); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

// Requests as no client library sends them.
func TestRawRequests(t *testing.T) {
	t.Parallel()
	console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != calls || r.Header.Get("Authorization") != "Bearer abc" || len(r.Header) != 4 {
			t.Errorf("the API server got %s %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	})
	const host = "Host: localhost\r\nAuthorization: Bearer abc\r\nConnection: close\r\n"
	for name, c := range map[string]struct {
		text string
		code int
	}{
		"a plain one":                     {"GET " + calls + " HTTP/1.1\r\n" + host + "\r\n", 200},
		"two lengths":                     {"GET " + calls + " HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n", 400},
		"a length and chunks":             {"GET " + calls + " HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"chunks":                          {"GET " + calls + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"a folded header":                 {"GET " + calls + " HTTP/1.1\r\n" + host + "X-A: b\r\n Impersonate-User: admin\r\n\r\n", 200},
		"a header with a space":           {"GET " + calls + " HTTP/1.1\r\n" + host + "Impersonate-User : admin\r\n\r\n", 400},
		"a header that Connection names":  {"GET " + calls + " HTTP/1.1\r\n" + host + "Connection: Authorization\r\n\r\n", 200},
		"two hosts":                       {"GET " + calls + " HTTP/1.1\r\n" + host + "Host: evil.test\r\n\r\n", 400},
		"no host":                         {"GET " + calls + " HTTP/1.1\r\nAuthorization: Bearer abc\r\n\r\n", 400},
		"an absolute address":             {"GET http://localhost" + calls + " HTTP/1.1\r\n" + host + "\r\n", 404},
		"an absolute address of another":  {"GET http://evil.test" + calls + " HTTP/1.1\r\n" + host + "\r\n", 421},
		"an upgrade":                      {"GET " + calls + " HTTP/1.1\r\n" + host + "Upgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n", 400},
		"a request line with a line feed": {"GET " + calls + "\n HTTP/1.1\r\n" + host + "\r\n", 400},
		"CONNECT":                         {"CONNECT localhost:443 HTTP/1.1\r\n" + host + "\r\n", 405},
		"headers of 25 KiB":               {"GET " + calls + " HTTP/1.1\r\n" + host + "X-A: " + strings.Repeat("a", 25<<10) + "\r\n\r\n", 431},
		"another version":                 {"GET " + calls + " HTTP/1.0\r\n" + host + "\r\n", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if code, header, body := raw(t, console, c.text); code != c.code {
				t.Errorf("%d, not %d: %v %.200s", code, c.code, header, body)
			}
		})
	}
}

// Whatever is in the API server's place, the answer's headers are the console's, and its type can't run.
func TestAnswersOfAnotherServer(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for _, name := range []string{"Set-Cookie", "Access-Control-Allow-Origin", "Content-Security-Policy", "X-Evil", "Www-Authenticate", "Refresh", "Clear-Site-Data"} {
			h.Set(name, "evil")
		}
		h.Set("Content-Type", "text/html")
		h.Set("Toolcall-Uid", "<script>")
		h.Set("Toolcall-Sha256", "a b")
		switch r.URL.Query().Get("artifact") {
		case "redirect":
			h.Set("Location", "/apis/elsewhere")
			w.WriteHeader(http.StatusFound)
		case "created":
			w.WriteHeader(http.StatusCreated)
		case "error":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<script>alert(1)</script>")
		case "status":
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"kind":"Status","code":200,"message":"<script>%s"}`, strings.Repeat("x", 50_000))
		case "code":
			w.WriteHeader(700)
		default:
			followed.Store(followed.Load() || strings.Contains(r.URL.Path, "elsewhere"))
			fmt.Fprint(w, "<script>alert(1)</script>")
		}
	})
	for path, want := range map[string]struct {
		code      int
		mediaType string
	}{
		calls:                        {502, "application/json"},
		logOf + "?artifact=a.html":   {200, "application/octet-stream"},
		logOf + "?artifact=redirect": {502, "application/json"},
		logOf + "?artifact=created":  {502, "application/json"},
		logOf + "?artifact=error":    {403, "application/json"},
		logOf + "?artifact=status":   {403, "application/json"},
		logOf + "?artifact=code":     {502, "application/json"},
	} {
		response := send(t, console, path, withToken("abc"))
		body := read(t, response)
		if response.StatusCode != want.code || response.Header.Get("Content-Type") != want.mediaType || len(body) > 6000 {
			t.Errorf("%s: %d %s, %d bytes", path, response.StatusCode, response.Header.Get("Content-Type"), len(body))
		}
		if want.mediaType == "application/json" && strings.Contains(body, "<") {
			t.Errorf("%s: %.200s", path, body)
		}
		checkHeaders(t, response, dataPolicy)
		for _, name := range []string{"X-Evil", "Refresh", "Clear-Site-Data", "Location", "Toolcall-Uid", "Toolcall-Sha256"} {
			if response.Header.Get(name) != "" {
				t.Errorf("%s: %s passes", path, name)
			}
		}
	}
	if followed.Load() {
		t.Error("the redirect was followed")
	}
}

// An answer that breaks off, or that is too long, isn't taken for a whole one.
func TestCutAnswersAreErrors(t *testing.T) {
	t.Parallel()
	console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("continue") {
			part := []byte(strings.Repeat(" ", 1<<20))
			for range maxObjects>>20 + 1 {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
			return
		}
		fmt.Fprint(w, `{"a":`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{calls, calls + "?watch=true", calls + "?continue=a", logOf} {
		response := send(t, console, path, withToken("abc"))
		if n, err := io.Copy(io.Discard, response.Body); err == nil {
			t.Errorf("%s: %d bytes and a clean end", path, n)
		}
	}
}

// Requests are bounded for one token and in all, and those that end make room.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 16)
	console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	o := testOptions()
	open := func(token string) (context.CancelFunc, int) {
		ctx, cancel := context.WithCancel(t.Context())
		response := send(t, console, calls+"?watch=true", withToken(token), func(r *http.Request) { *r = *r.WithContext(ctx) })
		if response.StatusCode == http.StatusOK {
			<-arrived
		}
		return cancel, response.StatusCode
	}
	var cancels []context.CancelFunc
	for i := range o.MaxRequests {
		cancel, code := open(fmt.Sprint("token", i/o.MaxRequestsPerToken))
		if code != http.StatusOK {
			t.Fatalf("request %d: %d", i, code)
		}
		cancels = append(cancels, cancel)
		if i == o.MaxRequestsPerToken-1 {
			if _, code := open("token0"); code != http.StatusTooManyRequests {
				t.Errorf("one more with the same token: %d", code)
			}
		}
	}
	if _, code := open("another"); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	for _, cancel := range cancels {
		cancel()
	}
	deadline := time.Now().Add(testTimeout)
	for code := 0; code != http.StatusOK; {
		var cancel context.CancelFunc
		cancel, code = open("another")
		defer cancel()
		if time.Now().After(deadline) {
			t.Fatal("requests that ended make no room")
		}
	}
}

// An API server that is silent is told from a console that is away, also in the log.
func TestAnAPIServerThatIsSilent(t *testing.T) {
	t.Parallel()
	if headersTimeout >= writeTimeout {
		t.Errorf("the time to answer ends after %s, before that of the API server, %s", writeTimeout, headersTimeout)
	}
	api := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	o, log := testOptions(), &lines{written: make(chan struct{}, 1)}
	o.limits = timeouts{headers: 10 * time.Millisecond, write: testTimeout}
	console, _ := serveLogging(t, &rest.Config{Host: api.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, o, slog.New(slog.NewTextHandler(log, nil)))
	if got := statusOf(t, send(t, console, calls, withToken("abc"))); got.Code != http.StatusGatewayTimeout {
		t.Errorf("%+v", got)
	}
	log.await(t, "the API server doesn't answer in time")
}
