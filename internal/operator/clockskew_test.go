package operator

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

func TestClockSkew(t *testing.T) {
	t.Parallel()
	sent := time.Date(2026, 1, 1, 12, 0, 0, 400e6, time.UTC)
	received := sent.Add(2 * time.Second)
	for name, tc := range map[string]struct {
		date time.Time
		want time.Duration
	}{
		"the second in which the request was sent":    {sent.Truncate(time.Second), 0},
		"the second in which the answer was received": {received.Truncate(time.Second), 0},
		"the second before the request":               {sent.Truncate(time.Second).Add(-time.Second), -400 * time.Millisecond},
		"the second after the answer":                 {received.Truncate(time.Second).Add(time.Second), 600 * time.Millisecond},
		"an hour ahead":                               {received.Add(time.Hour), time.Hour},
		"an hour behind":                              {sent.Add(-time.Hour), -time.Hour + time.Second},
	} {
		if got := clockSkew(sent, received, tc.date); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestSkewIsLoggedWhenItBegins(t *testing.T) {
	date := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", date) }))
	defer server.Close()
	logged := 0
	transport := &skewTransport{next: http.DefaultTransport, log: funcr.New(func(_, _ string) { logged++ }, funcr.Options{})}
	for i, step := range []struct {
		date string
		want int
	}{
		{time.Now().UTC().Format(http.TimeFormat), 0},
		{time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), 1},
		{time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), 1},
		{"yesterday", 1},
		{time.Now().UTC().Format(http.TimeFormat), 1},
		{time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat), 2},
	} {
		date = step.date
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if logged != step.want {
			t.Errorf("step %d, %q: logged %d times, want %d", i, date, logged, step.want)
		}
	}
}
