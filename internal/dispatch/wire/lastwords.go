package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// LastWords is the copy of a result that a runner leaves in its container's termination message. The command
// could write there too: the code, made with the pod's token, tells whose words they are.
type LastWords struct {
	// Outcome is what result.EncodeTermination wrote.
	Outcome json.RawMessage `json:"outcome"`
	Code    string          `json:"code"`
}

// LastWordsOverhead is how much longer than its outcome an encoded LastWords is, in bytes, or a little less.
const LastWordsOverhead = 128

// NewLastWords vouches for an encoded outcome of a call.
func NewLastWords(token, callUID string, outcome []byte) *LastWords {
	return &LastWords{Outcome: outcome, Code: lastWordsCode(token, callUID, outcome)}
}

// Encode writes the words as one line of JSON. The outcome goes in byte for byte: encoding/json would escape
// it anew, and the code would no longer fit.
func (w *LastWords) Encode() []byte {
	return fmt.Appendf(nil, `{"outcome":%s,"code":%q}`, w.Outcome, w.Code)
}

// Check says whether the words were made with the token, for that call.
func (w *LastWords) Check(token, callUID string) bool {
	return hmac.Equal([]byte(w.Code), []byte(lastWordsCode(token, callUID, w.Outcome)))
}

func lastWordsCode(token, callUID string, outcome []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "last words of %d:%s:", len(callUID), callUID)
	mac.Write(outcome)
	return hex.EncodeToString(mac.Sum(nil))
}
