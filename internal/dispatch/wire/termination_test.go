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

// A pod may have ended before the operator of today was there: its message has no connection whose version could be refused.
func TestATerminationMessageThatWasWrittenBeforeIsBelieved(t *testing.T) {
	t.Parallel()
	var message wire.TerminationMessage
	if err := json.Unmarshal([]byte(writtenBefore), &message); err != nil {
		t.Fatal(err)
	}
	if !message.Verify("TOKEN", "call-uid") || message.Verify("TOKEN", "call-uid2") {
		t.Error("the code is another one now")
	}
	if o, err := result.DecodeTermination(message.Outcome); err != nil || o.Reason != result.NonZeroExit {
		t.Errorf("the outcome is %+v, %v", o, err)
	}
}

const writtenBefore = `{"outcome":{"v":1,"reason":"NonZeroExit","message":"The command exited with code 3.","started":true,"exitCode":3,"startTime":"2026-03-01T12:00:00.123456789Z","completionTime":"2026-03-01T12:00:01.623456789Z","durationMS":1500,"workingDir":"/workspace","stdout":{"bytes":6,"sha256":"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03","head":"hello\n"},"stderr":{"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}},"code":"acfb1857b7126058fb29234da966c26a5cf69a9dfa30bd328b0d7808b420eb91"}`

func TestInternalVariablesAreTheRunnersOwn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{wire.EnvToken: true, wire.EnvRefPrefix + "0": true, "TOOLCALL_X": false, "PATH": false} {
		if wire.Internal(name) != want {
			t.Errorf("Internal(%s) is %v", name, !want)
		}
	}
}
