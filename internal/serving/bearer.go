package serving

import (
	"net/http"
	"regexp"
)

// maxToken is longer than any token that an API server issues.
const maxToken = 16 << 10

// bearer is the Authorization header of RFC 6750.
var bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *$`)

// BearerToken returns the token of a request; empty if it has none, or one that a header can't carry according to RFC 6750. Nothing else is
// certain about the form of a token: it can be a JWT, a bootstrap token or any text that a webhook knows.
func BearerToken(r *http.Request) string {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 || len(headers[0]) > maxToken {
		return ""
	}
	if match := bearer.FindStringSubmatch(headers[0]); match != nil {
		return match[1]
	}
	return ""
}
