package console

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// tokenKey tells tokens apart without being one.
type tokenKey [sha256.Size]byte

// keyOf is the same for all spellings of a token. API servers decode the parts of a signed token leniently: the unused bits at the
// end of each may be anything. An ECDSA signature (r, s) has a second form, (r, -s), so only its first half counts.
func keyOf(token string) tokenKey {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return sha256.Sum256([]byte(token))
	}
	decoded := make([][]byte, len(parts))
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "=")); err != nil {
			return sha256.Sum256([]byte(token))
		}
	}
	signature := decoded[2]
	return sha256.Sum256(fmt.Appendf(nil, "%q.%q.%q", decoded[0], decoded[1], signature[:(len(signature)+1)/2]))
}
