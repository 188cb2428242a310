package console

import "time"

const (
	// headersTimeout bounds the time until the API server begins to answer, bodyTimeout that of a whole answer, and maxStream that
	// of a watch or a follow: rights are looked at again when the page goes on.
	headersTimeout = 20 * time.Second
	bodyTimeout    = 5 * time.Minute
	maxStream      = 10 * time.Minute
	// streamGrace lets the API server end a watch between two events.
	streamGrace = 10 * time.Second
	// writeTimeout bounds how long a client may take nothing of what waits for it. The server counts it from the request's headers
	// on, so it is longer than headersTimeout: otherwise no answer could say that the API server doesn't answer.
	writeTimeout = 30 * time.Second
	// pingInterval is the silence after which a client is asked over HTTP/2 whether it is still there.
	pingInterval = 30 * time.Second
)

// timeouts are those that tests shorten.
type timeouts struct{ headers, write time.Duration }

// timeouts returns the console's, where they aren't set.
func (o *Options) timeouts() timeouts {
	if o.limits == (timeouts{}) {
		return timeouts{headers: headersTimeout, write: writeTimeout}
	}
	return o.limits
}
