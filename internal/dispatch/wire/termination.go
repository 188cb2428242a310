package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// TerminationMessagePath is where the runner writes its termination message. The kubelet mounts it.
const TerminationMessagePath = "/dev/termination-log"

// TerminationMessage is the copy of a result that a runner leaves in its container's termination message. The command
// could write there too, so the copy carries a code that is made with the pod's token.
type TerminationMessage struct {
	// Outcome is what result.EncodeTermination wrote.
	Outcome json.RawMessage `json:"outcome"`
	Code    string          `json:"code"`
}

// TerminationMessageOverhead bounds how many bytes an encoded TerminationMessage is longer than its outcome.
const TerminationMessageOverhead = 128

// NewTerminationMessage authenticates the encoded outcome of a call with the pod's token.
func NewTerminationMessage(token, callUID string, outcome []byte) *TerminationMessage {
	return &TerminationMessage{Outcome: outcome, Code: terminationCode(token, callUID, outcome)}
}

// Encode writes the message as one line of JSON. It copies the outcome byte for byte: encoding/json would escape it
// anew, and the code would no longer match.
func (m *TerminationMessage) Encode() []byte {
	return fmt.Appendf(nil, `{"outcome":%s,"code":%q}`, m.Outcome, m.Code)
}

// Verify says whether the message was made with the token, for that call.
func (m *TerminationMessage) Verify(token, callUID string) bool {
	return hmac.Equal([]byte(m.Code), []byte(terminationCode(token, callUID, m.Outcome)))
}

// terminationLabel is part of the format: runners of every version authenticate their message with it.
const terminationLabel = "last words of"

func terminationCode(token, callUID string, outcome []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "%s %d:%s:", terminationLabel, len(callUID), callUID)
	mac.Write(outcome)
	return hex.EncodeToString(mac.Sum(nil))
}
