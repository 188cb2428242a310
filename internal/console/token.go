package console

import (
	"crypto/sha256"
	"net/http"
	"regexp"
)

// maxToken is longer than any token that an API server issues.
const maxToken = 16 << 10

// bearer is what RFC 6750 lets a header carry.
var bearer = regexp.MustCompile(`^(?i:bearer) +([A-Za-z0-9._~+/-]+=*) *$`)

// tokenKey tells tokens apart without being one.
type tokenKey [sha256.Size]byte

// bearerToken returns the token of a request, if it has one.
func bearerToken(r *http.Request) (token string, key tokenKey, ok bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 || len(headers[0]) > maxToken {
		return "", tokenKey{}, false
	}
	match := bearer.FindStringSubmatch(headers[0])
	if match == nil {
		return "", tokenKey{}, false
	}
	return match[1], sha256.Sum256([]byte(match[1])), true
}
