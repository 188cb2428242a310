package serving

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// An answer that its client doesn't read is given up, with both versions of HTTP.
func TestAnAnswerThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := make(chan error, 1)
			web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				timed := NewTimedWriter(w, 20*time.Millisecond)
				defer timed.Finish()
				for {
					if _, err := timed.Write(make([]byte, 1<<20)); err != nil {
						failed <- err
						return
					}
				}
			}))
			web.EnableHTTP2 = http2
			web.StartTLS()
			defer web.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := web.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			select {
			case <-failed:
			case <-time.After(2 * time.Minute):
				t.Error("the answer is still written")
			}
		})
	}
}
