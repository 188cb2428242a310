package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output"
)

// follower reads a stream from operator to operator.
type follower struct {
	t       *testing.T
	keyHash string
	key     output.Key
	hash    hash.Hash
	n       int64
}

func newFollower(t *testing.T, runner *dispatch.Runner, uid string, stream output.Stream) *follower {
	return &follower{
		t: t, keyHash: runner.KeyHash(), hash: sha256.New(),
		key: output.Key{Namespace: "ns", Name: "call", UID: types.UID(uid), Stream: stream},
	}
}

// follow reads on, at the operator that listens now, until there are so many bytes or the stream ends.
func (f *follower) follow(o *operator, upTo int64) (info output.Info) {
	f.t.Helper()
	source := &dispatch.RunnerSource{Hub: o.hub, RunnerOf: func(context.Context, output.Key) (string, error) { return f.keyHash, nil }}
	r, err := source.Open(f.t.Context(), f.key)
	for errors.Is(err, dispatch.ErrAway) {
		<-o.events
		r, err = source.Open(f.t.Context(), f.key)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Close()
	for p := make([]byte, 50_000); f.n < upTo; {
		n, err := r.ReadAt(f.t.Context(), p, f.n)
		f.hash.Write(p[:n])
		f.n += int64(n)
		switch {
		case err == nil:
		case errors.Is(err, output.ErrNoMore):
			if err := r.Wait(f.t.Context(), f.n); err != nil {
				f.t.Fatal(err)
			}
		case errors.Is(err, io.EOF):
			return r.Info()
		default:
			f.t.Fatalf("at %d: %v", f.n, err)
		}
	}
	return r.Info()
}

func (f *follower) sum() string { return hex.EncodeToString(f.hash.Sum(nil)) }

// checkWhole checks that all was read.
func (f *follower) checkWhole(info output.Info, size int64) {
	f.t.Helper()
	if f.n != size || info != (output.Info{Bytes: size, Complete: true, SHA256: f.sum()}) {
		f.t.Errorf("read %d bytes, %s, of %+v", f.n, f.sum(), info)
	}
}

// endless is more than anybody asks for.
const endless = 1 << 62

func TestOutputIsReadWholeWhileOperatorsComeAndGo(t *testing.T) {
	o := newOperator(t)
	p := startRunner(t, o)
	runner := <-o.events
	const size = 8 << 20
	a := p.assignment(`seq 1 100000000 | head -c 4194304; read x <` + p.fifo("on") + `; seq 7 100000000 | head -c 4194304; read x <` + p.fifo("end"))
	a.KeepBytesPerStream = size
	assign(t, runner, a)
	f := newFollower(t, runner, "c1", output.Stdout)
	for _, upTo := range []int64{1, 100_000, 3 << 20} {
		f.follow(o, upTo)
		o.stop()
		o.start()
	}
	f.follow(o, 4<<20)
	p.say("on")
	f.follow(o, 6<<20)
	o.stop()
	o.start()
	f.follow(o, size)
	p.say("end")
	info := f.follow(o, endless)
	f.checkWhole(info, size)
	none := newFollower(t, runner, "c1", output.Stderr)
	none.checkWhole(none.follow(o, endless), 0)
	if r := o.result("c1"); r.Outcome.Stdout.SHA256 != info.SHA256 {
		t.Errorf("the result says %s", r.Outcome.Stdout.SHA256)
	}
	p.ack(o.hub.RunnerByKey(runner.KeyHash()))
}

// say lets a script go on.
func (p *process) say(fifo string) {
	p.t.Helper()
	if err := os.WriteFile(p.Dir+"/"+fifo, []byte("\n"), 0); err != nil {
		p.t.Fatal(err)
	}
}

func TestOutputOfASessionIsReadDuringItsCallsAndAfterThem(t *testing.T) {
	o := newOperator(t)
	p := startRunnerBy(t, o, nil, wire.EnvCall+"=", wire.EnvPool+"=env")
	runner := <-o.events
	if err := runner.Begin(theSession(2)); err != nil {
		t.Fatal(err)
	}
	const size = 2 << 20
	run := func(uid, script string) {
		a := p.call(uid, script).Assign
		a.KeepBytesPerStream = size
		if err := runner.Assign("s1", a); err != nil {
			t.Fatal(err)
		}
	}
	run("c1", `seq 1 100000000 | head -c 1048576; read x <`+p.fifo("on")+`; seq 3 100000000 | head -c 1048576`)
	f := newFollower(t, runner, "c1", output.Stdout)
	f.follow(o, 1<<20)
	// What it can see of the files that others' output is in.
	run("c2", `ls -l /proc/[0-9]*/fd/ 2>/dev/null | grep -c 'tmp.*deleted'`)
	other := newFollower(t, runner, "c2", output.Stdout)
	other.follow(o, endless)
	p.say("on")
	live := f.follow(o, endless)
	f.checkWhole(live, size)
	for ended := 0; ended < 2; {
		for _, uid := range []string{"c1", "c2"} {
			if r := runner.ResultOf(uid); r != nil {
				if uid == "c2" && !strings.HasPrefix(string(r.Outcome.Stdout.Head), "0\n") {
					t.Errorf("another call sees %q", r.Outcome.Stdout.Head)
				}
				if err := runner.Ack(uid); err != nil {
					t.Fatal(err)
				}
				ended++
			}
		}
		if ended < 2 {
			<-o.events
		}
	}
	// They are acknowledged, and the operator has forgotten them.
	again := newFollower(t, runner, "c1", output.Stdout)
	again.checkWhole(again.follow(o, endless), size)
	if err := runner.End("EndRequested"); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(); code != 0 {
		t.Errorf("the runner exited with %d: %s", code, p.stderr.String())
	}
}
