package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
)

func TestATerminationMessageIsBelievedOnlyWithTheToken(t *testing.T) {
	t.Parallel()
	outcome := []byte(`{"reason":"Completed","text":"a<b>&c"}`)
	message := wire.NewTerminationMessage("token", "call", outcome)
	if !message.Verify("token", "call") {
		t.Error("the runner's own message is not believed")
	}
	for name, believed := range map[string]bool{
		"another token":   message.Verify("other", "call"),
		"no token":        message.Verify("", "call"),
		"another call":    message.Verify("token", "other"),
		"another outcome": (&wire.TerminationMessage{Outcome: []byte(`{"reason":"Failed"}`), Code: message.Code}).Verify("token", "call"),
		"no code":         (&wire.TerminationMessage{Outcome: outcome}).Verify("token", "call"),
	} {
		if believed {
			t.Errorf("%s: believed", name)
		}
	}
	encoded := message.Encode()
	if !bytes.Contains(encoded, outcome) || len(encoded) > len(outcome)+wire.TerminationMessageOverhead {
		t.Errorf("encoded as %s", encoded)
	}
	var decoded wire.TerminationMessage
	if err := json.Unmarshal(encoded, &decoded); err != nil || !decoded.Verify("token", "call") {
		t.Errorf("decoded as %+v, %v", decoded, err)
	}
}

func TestATerminationMessageOfVersion1IsBelieved(t *testing.T) {
	t.Parallel()
	var message wire.TerminationMessage
	if err := json.Unmarshal([]byte(recorded(t, "termination")), &message); err != nil {
		t.Fatal(err)
	}
	if !message.Verify("TOKEN", "call-uid") || message.Verify("TOKEN", "call-uid2") {
		t.Error("the code is not the one that version 1 makes")
	}
	if o, err := result.DecodeTermination(message.Outcome); err != nil || o.Reason != result.NonZeroExit {
		t.Errorf("the outcome is %+v, %v", o, err)
	}
}

func TestInternalVariablesAreTheRunnersOwn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{wire.EnvToken: true, wire.EnvRefPrefix + "0": true, "TOOLCALL_X": false, "PATH": false} {
		if wire.Internal(name) != want {
			t.Errorf("Internal(%s) is %v", name, !want)
		}
	}
}
