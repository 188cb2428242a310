package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

const secretValue = "correct-horse-battery"

// withSecrets gives a call a value in a variable and in a file.
func withSecrets(m *wire.Message) *wire.Message {
	m.Assign.Environment.Layers = []envresolve.Layer{{Source: envresolve.SourceEnvironment, Vars: []envresolve.Var{
		{Name: "TOKEN", Ref: wire.EnvRefPrefix + "1", Apart: true}, {Name: "KEY", Ref: wire.EnvRefPrefix + "1", Apart: true, File: true},
	}}}
	return m
}

// startSecretsRunner starts a session's runner with a value, without any right of root to look into other processes.
func startSecretsRunner(t *testing.T) (*sessionOperator, *process) {
	t.Helper()
	var prefix []string
	if os.Getuid() == 0 {
		if _, err := exec.LookPath("setpriv"); err != nil {
			t.Skip("setpriv isn't installed")
		}
		prefix = []string{"setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"}
	}
	o := newSessionOperator(t)
	p := startRunnerBy(t, &operator{identity: o.identity, address: o.listener.Addr().String()}, prefix, wire.EnvRefPrefix+"1="+secretValue)
	// Other runners of this machine may have files there.
	t.Cleanup(func() { _ = os.Remove("/tmp/.toolcall-files") })
	if support := o.begin(2); support.Missing(&rules.Rules{Beside: true}) != "" {
		t.Skip("calls can't be kept apart here")
	}
	return o, p
}

func TestACallOfASessionDoesNotFindTheSecretsOfAnother(t *testing.T) {
	o, p := startSecretsRunner(t)
	ready := p.fifo("ready")
	o.send(withSecrets(p.call("holder", `test "$TOKEN" = "$(cat "$KEY")" && tr '\0' '\n' </proc/$$/environ | grep -c "^TOKEN=`+secretValue+`" >count
echo $$ "$KEY" $(cat count) >`+ready+`; exec sleep 600`)))
	said := strings.Fields(p.read(ready))
	if len(said) != 3 || said[2] != "1" {
		t.Fatalf("the call with the secrets says %q", said)
	}
	for name, tc := range map[string]struct {
		rules *rules.Rules
		want  string
	}{
		"no policy's paths":               {nil, "read the file"},
		"paths without the temporary one": {&rules.Rules{ReadPaths: []string{p.Dir}, WritePaths: []string{p.Dir}}, ""},
	} {
		uid := strings.ReplaceAll(name, " ", "-")
		m := p.call(uid, "cat /proc/"+said[0]+"/environ && echo read the variables; cat "+said[1]+" >/dev/null && echo read the file; env | grep "+secretValue)
		m.Assign.Rules = tc.rules
		o.send(m)
		if r := o.result(uid); strings.TrimSpace(stdout(r)) != tc.want || !r.Outcome.Started {
			t.Errorf("%s: got %q, %s, %s", name, stdout(r), r.Outcome.Message, r.Outcome.Stderr.Head)
		}
		o.send(acked(uid))
	}
	o.send(&wire.Message{Stop: &wire.Stop{CallUID: "holder", Reason: result.CancelRequested}})
	if r := o.result("holder"); r.Outcome.Reason != result.CancelRequested || strings.Contains(r.Outcome.Message, "secrets") {
		t.Errorf("the call with the secrets ended as %s: %s", r.Outcome.Reason, r.Outcome.Message)
	}
	if _, err := os.Stat(said[1]); !os.IsNotExist(err) {
		t.Errorf("its file: %v", err)
	}
}
