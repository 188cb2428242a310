package dispatch_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/result"
)

// recorded is a frame's body that a runner of version 1 wrote, with the token of this operator.
func recorded(t *testing.T, o *operator, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("wire", "testdata", "version1", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), "TOKEN", o.identity.Token("ns", "job", "job-uid"))
}

func TestARunnerOfTheVersionBeforeCompletesItsCall(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.send(recorded(t, o, "hello-with-call"))
	session := o.event(t)
	if session.CallUID() != "call-uid" || session.Hello().Version != 1 {
		t.Fatalf("the session is of call %q, version %d", session.CallUID(), session.Hello().Version)
	}
	p.send(recorded(t, o, "ping"))
	if m, err := p.receive(); err != nil || m.Pong == nil {
		t.Errorf("got %+v, %v; want a pong", m, err)
	}
	if err := session.Assign(&wire.Assignment{CallUID: "another"}); err != nil {
		t.Error(err)
	}
	if err := session.Cancel("call-uid"); err != nil {
		t.Error(err)
	}
	if m, err := p.receive(); err != nil || m.Cancel == nil || m.Cancel.CallUID != "call-uid" {
		t.Errorf("got %+v, %v; want the cancel and no assignment", m, err)
	}
	p.send(recorded(t, o, "result"))
	if r := o.event(t).Result(); r == nil || r.Validate() != nil || r.Outcome.Reason != result.NonZeroExit || len(r.Environment.Vars) != 1 {
		t.Fatalf("the result is %+v", r)
	}
	if err := session.Ack("call-uid"); err != nil {
		t.Error(err)
	}
	if m, err := p.receive(); err != nil || m.Ack == nil || m.Ack.CallUID != "call-uid" {
		t.Errorf("got %+v, %v; want the acknowledgement", m, err)
	}
}

// Its pod is replaced by one with this version's runner.
func TestAnOlderRunnerThatWaitsIsRefused(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	hello := recorded(t, o, "hello-waiting")
	// A runner of version 2 ignores rules.
	for _, said := range []string{hello, strings.Replace(hello, `"version":1`, `"version":2`, 1)} {
		p := newPeer(t, o)
		p.send(said)
		if m, err := p.receive(); err != nil || m.Refuse == nil || !strings.Contains(m.Refuse.Reason, "version") {
			t.Errorf("got %+v, %v; want a refusal that says why", m, err)
		}
		p.awaitEnd()
		if o.hub.Len() != 0 || len(o.events) != 0 {
			t.Error("a session was made")
		}
	}
}

func TestARunnerOfTheVersionBeforeIsAuthenticatedToo(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.send(strings.Replace(recorded(t, o, "hello-with-call"), `"job-uid"`, `"other-uid"`, 1))
	if m, err := p.receive(); err != nil || m.Refuse == nil {
		t.Errorf("got %+v, %v; want a refusal", m, err)
	}
	p.awaitEnd()
	if o.hub.Len() != 0 {
		t.Error("a session was made")
	}
}

// What version 1 could send is more than this version's largest result: it is taken, and cut.
func TestALargeResultOfTheVersionBeforeIsCut(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.send(recorded(t, o, "hello-with-call"))
	session := o.event(t)
	half := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 256<<10))
	stream := fmt.Sprintf(`{"head":%q,"tail":%q,"bytes":600000}`, half, half)
	const name = `{"n":"A","s":"Image"},`
	const named = wire.MaxResult / len(name)
	names := strings.TrimSuffix(strings.Repeat(name, named), ",")
	body := fmt.Sprintf(`{"result":{"callUID":"call-uid","outcome":{"reason":"Completed","started":true,"exitCode":0,"message":%q,"stdout":%s,"stderr":%s},"environment":{"vars":[%s]}}}`,
		strings.Repeat("m", 32<<10), stream, stream, names)
	if len(body) <= wire.MaxResult {
		t.Fatalf("%d bytes are no more than this version may send: %d", len(body), wire.MaxResult)
	}
	p.send(body)
	o.event(t)
	r := session.Result()
	if r == nil || r.Validate() != nil {
		t.Fatalf("got %v", r)
	}
	kept := len(r.Outcome.Stdout.Head) + len(r.Outcome.Stdout.Tail)
	if kept != result.MaxStreamBytes || r.Outcome.Stdout.Bytes != 600000 || len(r.Environment.Vars) != wire.MaxNames || r.Environment.OmittedVars != named-wire.MaxNames {
		t.Errorf("kept %d bytes of %d, %d names and %d more", kept, r.Outcome.Stdout.Bytes, len(r.Environment.Vars), r.Environment.OmittedVars)
	}
	// A runner of this version may not send as much.
	p = newPeer(t, o)
	p.hello(o, "other", "c1")
	o.event(t)
	p.announce(len(body))
	p.awaitEnd()
}

// A runner that is asked for what it doesn't know would leave the connection, and with it a call's result.
func TestARunnerThatKeepsNoFilesIsNotAskedForOne(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	p := newPeer(t, o)
	p.send(helloOf(o, 6, "job", "c1"))
	source := sourceOf(o, o.event(t).KeyHash())
	key := keyOf("c1")
	key.Stream, key.Artifact = "", "out/plot.png"
	if _, err := source.Open(t.Context(), key); !errors.Is(err, output.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	p.send(`{"ping":{}}`)
	if m, err := p.receive(); err != nil || m.Pong == nil {
		t.Errorf("it was sent %+v, %v", m, err)
	}
}
