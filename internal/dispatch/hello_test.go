package dispatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/supervisor"
)

// changedHello is a hello with a valid token, also after the change.
func changedHello(t *testing.T, o *operator, change func(*wire.Hello)) string {
	t.Helper()
	h := wire.Hello{
		Version: wire.Version, Namespace: "ns", Call: "call", Pool: "pool", Job: "job", JobUID: "job-uid",
		Pod: "pod", PodUID: "pod-uid", Node: "node",
	}
	change(&h)
	h.Token = o.identity.Token(h.Namespace, h.Job, h.JobUID)
	raw, err := json.Marshal(&wire.Message{Hello: &h})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

var (
	longName = strings.Repeat("a", 253)
	longUID  = strings.Repeat("f", 128)
)

func TestAHelloThatIsNotValidIsRefusedForGood(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, c := range map[string]struct {
		change func(*wire.Hello)
		field  string
	}{
		"a call with a slash":        {func(h *wire.Hello) { h.Call = "x/1" }, "call"},
		"a call of two dots":         {func(h *wire.Hello) { h.Call = ".." }, "call"},
		"a call in capitals":         {func(h *wire.Hello) { h.Call = "Call" }, "call"},
		"a call that is too long":    {func(h *wire.Hello) { h.Call = longName + "a" }, "call"},
		"a call with a line break":   {func(h *wire.Hello) { h.Call = "call\n" }, "call"},
		"a pool with a slash":        {func(h *wire.Hello) { h.Pool = "x/1" }, "pool"},
		"a pool with a percent sign": {func(h *wire.Hello) { h.Pool = "x%2f" }, "pool"},
		"a pod with a slash":         {func(h *wire.Hello) { h.Pod = "x/1" }, "pod"},
		"no pod":                     {func(h *wire.Hello) { h.Pod = "" }, "pod"},
		"a node that is too long":    {func(h *wire.Hello) { h.Node = longName + "a" }, "node"},
		"a node with a space":        {func(h *wire.Hello) { h.Node = "a node" }, "node"},
		"a long pod UID":             {func(h *wire.Hello) { h.PodUID = longUID + "f" }, "podUID"},
		"a pod UID of other letters": {func(h *wire.Hello) { h.PodUID = "ü" }, "podUID"},
		"no pod UID":                 {func(h *wire.Hello) { h.PodUID = "" }, "podUID"},
		"a pod UID with a slash":     {func(h *wire.Hello) { h.PodUID = "a/b" }, "podUID"},
	} {
		for _, serving := range []*wire.Serving{nil, {Owner: theCall}, {Owner: theSession}} {
			p := newPeer(t, o)
			p.send(changedHello(t, o, func(h *wire.Hello) { h.Serving = serving; c.change(h) }))
			// A runner that has begun gives up what it has only when the refusal is final.
			isRefusedForGood(t, p, "the hello's "+c.field+",")
			if o.hub.Len() != 0 || len(o.events) != 0 {
				t.Fatalf("%s: a session was made for %+v", name, serving)
			}
		}
	}
}

func TestAHelloMayLeaveOutWhatIsNotKnownAndUseTheBoundsToTheFull(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	for name, change := range map[string]func(*wire.Hello){
		"no call":           func(h *wire.Hello) { h.Call = "" },
		"no pool":           func(h *wire.Hello) { h.Pool = "" },
		"no node":           func(h *wire.Hello) { h.Node = "" },
		"nothing begun":     func(h *wire.Hello) { h.Serving = nil },
		"dots":              func(h *wire.Hello) { h.Call, h.Node = "a.b-c.1", "ip-10-0-0-1.eu.internal" },
		"Kubernetes' UIDs":  func(h *wire.Hello) { h.PodUID, h.Serving.UID = "0b4f3a52-8c1e-4f7e-9a57-0d8f1c2b3a4d", "A_b.c:d" },
		"a static pod's ID": func(h *wire.Hello) { h.PodUID = "3c2f1e0d9b8a76543210fedcba987654" },
		"the longest": func(h *wire.Hello) {
			h.Namespace = longName[:63]
			h.Call, h.Pool, h.Job, h.Pod, h.Node = longName, longName, longName, longName, longName
			h.JobUID, h.PodUID, h.Serving.UID, h.Serving.Name = longUID, longUID, longUID, longName
		},
	} {
		for _, owner := range owners {
			p := newPeer(t, o)
			p.send(changedHello(t, o, func(h *wire.Hello) { h.Serving = &wire.Serving{Owner: owner, Taken: 1}; change(h) }))
			o.event(t)
			p.Close()
			o.event(t)
			if o.hub.Len() != 0 {
				t.Fatalf("%s: the runner is still there", name)
			}
		}
	}
}

// A real runner ends.
func TestARunnerWhoseHelloIsNotValidEnds(t *testing.T) {
	o := startOperator(t, newIdentity(t))
	env := podEnv(o, "job")
	env[wire.EnvNode] = longName + "a"
	config := runnerOf(t, env)
	s := &supervisor.Supervisor{Dial: func(ctx context.Context, serving *wire.Serving) (supervisor.Conn, error) {
		return config.Dial(ctx, serving)
	}}
	if err := s.Run(t.Context(), context.Background()); !errors.Is(err, supervisor.ErrRefused) {
		t.Errorf("got %v", err)
	}
}
