package operator

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"toolcall.dev/operator/internal/metrics"
)

const (
	// dateGranularity is that of the Date header.
	dateGranularity = time.Second
	// skewLimit is from which skew on the log says so. The alert ToolCallClocksDiffer has the same.
	skewLimit = 5 * time.Second
)

// skewTransport compares the API server's clock with this machine's, by the Date header of each answer.
type skewTransport struct {
	next   http.RoundTripper
	log    logr.Logger
	differ atomic.Bool
}

// RoundTrip passes the request on.
func (t *skewTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return response, err
	}
	if date, wrong := http.ParseTime(response.Header.Get("Date")); wrong == nil {
		t.observe(clockSkew(sent, time.Now(), date))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the connection pool underneath.
func (t *skewTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// observe logs a skew when it begins.
func (t *skewTransport) observe(skew time.Duration) {
	metrics.SetClockSkew(skew)
	differ := skew.Abs() > skewLimit
	if t.differ.Swap(differ) != differ && differ {
		t.log.Info("The clocks of the API server and of this machine differ", "apiServerAheadSeconds", skew.Seconds())
	}
}

// clockSkew is how much the API server's clock is ahead at least, if it showed the date between a request and its answer.
func clockSkew(sent, received, date time.Time) time.Duration {
	// The header leaves out parts of a second.
	return max(date.Sub(received), 0) + min(date.Add(dateGranularity).Sub(sent), 0)
}
