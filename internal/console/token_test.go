package console

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"
)

// A token has one key, however it is spelled: the limit for one token counts by it.
func TestSpellingsOfATokenShareItsKey(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	digest := make([]byte, 32)
	r, s, err := ecdsa.Sign(rand.Reader, key, digest)
	must(t, err)
	signature := func(s *big.Int) string {
		return encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	prefix := encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(`{"sub":"a"}`)) + "."
	token := prefix + signature(s)
	spellings := []string{token + "==", prefix + signature(new(big.Int).Sub(key.Params().N, s))}
	for _, c := range alphabet {
		if other := token[:len(token)-1] + string(c); sameBytes(other, token) {
			spellings = append(spellings, other)
		}
	}
	if len(spellings) != 18 {
		t.Fatalf("%d spellings", len(spellings))
	}
	for _, spelling := range spellings {
		if keyOf(spelling) != keyOf(token) {
			t.Errorf("%s has another key", spelling)
		}
	}
	for name, other := range map[string]string{
		"another signature": prefix + encode(digest), "another payload": strings.Replace(token, encode([]byte(`{"sub":"a"}`)), encode([]byte(`{"sub":"b"}`)), 1),
		"no signature": prefix, "not base64": token + ".a", "two parts": strings.TrimSuffix(prefix, "."), "not JWT": "abc", "not base64 in three": "a.b.c",
	} {
		if keyOf(other) == keyOf(token) {
			t.Errorf("%s has the same key", name)
		}
	}
}

func sameBytes(a, b string) bool {
	decode := func(token string) string {
		raw, err := base64.RawURLEncoding.DecodeString(token[strings.LastIndex(token, ".")+1:])
		if err != nil {
			return token
		}
		return string(raw)
	}
	return decode(a) == decode(b)
}

// What the key takes for the same token, the API server does too; the other way around would give one token many.
func TestTheAPIServerTakesASpelling(t *testing.T) {
	f := newFixture(t)
	token := f.user("viewer", reads()...)
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", token[len(token)-1])
	other := token[:len(token)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last^1])
	response := send(t, f.console, f.list(), withToken(other))
	if response.StatusCode != http.StatusOK || keyOf(other) != keyOf(token) || !json.Valid([]byte(read(t, response))) {
		t.Errorf("%d; the same key: %t", response.StatusCode, keyOf(other) == keyOf(token))
	}
}
