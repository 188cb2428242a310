package dispatch_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// objects is what an API server, or a cache of it, has.
type objects struct {
	mu    sync.Mutex
	jobs  map[string]types.UID
	calls map[string]*v1alpha1.ToolCall
	// sessions are by their name.
	sessions map[string]*v1alpha1.ToolSession
	// fails is the answer to every request; hangs gives none.
	fails error
	hangs bool
	asked int
}

func newObjects() *objects {
	return &objects{jobs: map[string]types.UID{}, calls: map[string]*v1alpha1.ToolCall{}, sessions: map[string]*v1alpha1.ToolSession{}}
}

// Get implements client.Reader.
func (o *objects) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if o.hangs {
		o.mu.Unlock()
		<-ctx.Done()
		o.mu.Lock()
		return ctx.Err()
	}
	if o.fails != nil {
		return o.fails
	}
	name := key.Namespace + "/" + key.Name
	switch into := into.(type) {
	case *batchv1.Job, *metav1.PartialObjectMetadata:
		if uid, ok := o.jobs[name]; ok {
			into.SetUID(uid)
			return nil
		}
	case *v1alpha1.ToolCall:
		if call := o.calls[name]; call != nil {
			call.DeepCopyInto(into)
			return nil
		}
	case *v1alpha1.ToolSession:
		if session := o.sessions[name]; session != nil {
			session.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List is not needed.
func (o *objects) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

func (o *objects) change(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
}

func (o *objects) addJob(name string) {
	o.change(func() { o.jobs["ns/"+name] = types.UID(name + "-uid") })
}

// bind records the runner of call "c1".
func (o *objects) bind(keyHash string) {
	call := &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "call", UID: "c1"}}
	call.Status.Runner = &v1alpha1.RunnerBinding{KeyHash: keyHash}
	o.change(func() { o.calls["ns/call"] = call })
}

// recorded is an operator with a cache and an API server.
func recordedBubble(t *testing.T, limits dispatch.Limits) (n *network, o *operator, cached, live *objects) {
	cached, live = newObjects(), newObjects()
	limits.Records = &dispatch.Records{Cached: cached, Live: live}
	n, o = bubble(t, limits)
	return n, o, cached, live
}

// process is a peer's key, over as many connections as it makes.
type process struct {
	*tls.Config
	keyHash string
}

func newProcess(t *testing.T) *process {
	t.Helper()
	conf := clientTLS(t)
	cert, err := x509.ParseCertificate(conf.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return &process{conf, hex.EncodeToString(sum[:])}
}

// connect makes a peer with the process's key.
func (c *process) connect(t *testing.T, n *network) *peer {
	t.Helper()
	raw, err := n.from("10.2.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	p := &peer{t, tls.Client(raw, c.Config)}
	if err := p.Handshake(); err != nil {
		t.Fatal(err)
	}
	return p
}

// isRefusedForGood checks that a runner ends.
func isRefusedForGood(t *testing.T, p *peer, callUID, reason string) {
	t.Helper()
	m, err := p.receive()
	if err != nil || m.Refuse == nil || m.Refuse.CallUID != callUID || !strings.Contains(m.Refuse.Reason, reason) {
		t.Errorf("got %+v, %v; want a refusal of call %q", m, err, callUID)
	}
	p.awaitEnd()
}

func TestATokenIsWorthNothingWithoutItsJob(t *testing.T) {
	for name, change := range map[string]func(*objects){
		"deleted":            func(*objects) {},
		"made anew":          func(o *objects) { o.jobs["ns/job"] = "another-uid" },
		"of another name":    func(o *objects) { o.jobs["ns/job2"] = "job-uid" },
		"in another place":   func(o *objects) { o.jobs["ns2/job"] = "job-uid" },
		"a call of its name": func(o *objects) { o.calls["ns/job"] = &v1alpha1.ToolCall{} },
	} {
		synctest.Test(t, func(t *testing.T) {
			n, o, _, live := recordedBubble(t, dispatch.Limits{})
			live.change(func() { change(live) })
			p := n.peer(t)
			p.hello(o, "job", "")
			isRefusedForGood(t, p, "", "Job")
			synctest.Wait()
			if o.hub.Len() != 0 || len(o.events) != 0 {
				t.Errorf("%s: a session was made", name)
			}
		})
	}
}

func TestAJobThatTheCacheDoesNotShowYetCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		live.addJob("new")
		p := n.peer(t)
		p.hello(o, "new", "")
		o.event(t)
		// One that the cache has costs the API server nothing.
		asked := live.asked
		cached.addJob("known")
		other := n.peer(t)
		other.hello(o, "known", "")
		o.event(t)
		if live.asked != asked {
			t.Error("the API server was asked for what the cache has")
		}
	})
}

func TestOnlyTheRecordedRunnerSpeaksForACall(t *testing.T) {
	for name, c := range map[string]struct {
		bind    func(o *objects, key string)
		refused bool
	}{
		"its own":          {func(o *objects, key string) { o.bind(key) }, false},
		"its own, ended":   {func(o *objects, key string) { o.bind(key); o.calls["ns/call"].Status.Phase = v1alpha1.PhaseSucceeded }, false},
		"another runner's": {func(o *objects, _ string) { o.bind("another key") }, true},
		"nobody's":         {func(o *objects, key string) { o.bind(key); o.calls["ns/call"].Status.Runner = nil }, true},
		"one made anew":    {func(o *objects, key string) { o.bind(key); o.calls["ns/call"].UID = "c2" }, true},
		"one that is gone": {func(*objects, string) {}, true},
		"one elsewhere": {func(o *objects, key string) {
			o.bind(key)
			o.calls = map[string]*v1alpha1.ToolCall{"ns2/call": o.calls["ns/call"]}
		}, true},
		"one that is empty": {func(o *objects, _ string) { o.bind("") }, true},
	} {
		for _, inCache := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n, o, cached, live := recordedBubble(t, dispatch.Limits{})
				own := newProcess(t)
				c.bind(live, own.keyHash)
				if inCache {
					c.bind(cached, own.keyHash)
				}
				// There is a Job: that makes no difference.
				live.addJob("job")
				p := own.connect(t, n)
				p.hello(o, "job", "c1")
				if !c.refused {
					if o.event(t).CallUID() != "c1" {
						t.Errorf("%s: another session", name)
					}
					return
				}
				isRefusedForGood(t, p, "c1", "call")
				synctest.Wait()
				if o.hub.Len() != 0 || len(o.events) != 0 {
					t.Errorf("%s: a session was made", name)
				}
			})
		}
	}
}

// A runner that holds a result must not lose it to an outage; one that waits tries again.
func TestAnAPIServerThatDoesNotAnswerCostsNoResult(t *testing.T) {
	for name, outage := range map[string]func(*objects){
		"down":   func(o *objects) { o.fails = errors.New("down") },
		"silent": func(o *objects) { o.hangs = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			n, o, cached, live := recordedBubble(t, dispatch.Limits{})
			live.change(func() { outage(live) })
			holds := n.peer(t)
			holds.hello(o, "holds", "c1")
			session := o.event(t)
			waits := n.peer(t)
			waits.hello(o, "waits", "")
			if m, err := waits.receive(); err == nil {
				t.Errorf("%s: a runner that waits got %+v", name, m)
			}
			cached.addJob("known")
			known := n.peer(t)
			known.hello(o, "known", "")
			if got := o.event(t).Hello().Job; got != "known" {
				t.Errorf("%s: %s was served", name, got)
			}
			holds.send(resultOf("c1"))
			if o.event(t) != session || session.Result() == nil {
				t.Errorf("%s: the result didn't arrive", name)
			}
			// It stays while nobody can tell, and goes when the API server says that the claim was false.
			keepAlive(t, holds)
			time.Sleep(3 * dispatch.SweepInterval)
			if o.hub.Runner("holds-uid") != session {
				t.Errorf("%s: it was turned away in the outage", name)
			}
			live.change(func() { live.fails, live.hangs = nil, false })
			time.Sleep(dispatch.SweepInterval)
			synctest.Wait()
			if o.hub.Runner("holds-uid") != nil {
				t.Errorf("%s: a runner that no call records stays", name)
			}
		})
	}
}

// Nobody keeps the questions of others from being asked.
func TestManyQuestionsOfOneNamespaceDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, _, live := recordedBubble(t, dispatch.Limits{})
		live.addJob("job")
		var asking sync.WaitGroup
		defer asking.Wait()
		for i := range 500 {
			p := n.peer(t)
			body := changedHello(t, o, "", func(h *wire.Hello) {
				h.Namespace, h.Job, h.JobUID = "flood", fmt.Sprint("gone-", i), fmt.Sprint(i)
			})
			asking.Go(func() { _ = p.write(body); p.awaitEnd() })
		}
		synctest.Wait()
		p := n.peer(t)
		began := time.Now()
		p.hello(o, "job", "")
		if o.event(t).Hello().Job != "job" {
			t.Error("another runner was served")
		}
		if took := time.Since(began); took > time.Second/10 {
			t.Errorf("it waited %s", took)
		}
	})
}

func TestASessionEndsWithItsJobOrItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		own := newProcess(t)
		sessions := map[string]*dispatch.Runner{}
		peers := map[string]*peer{}
		connect := func(job, callUID string) {
			peers[job] = own.connect(t, n)
			peers[job].hello(o, job, callUID)
			sessions[job] = o.event(t)
			keepAlive(t, peers[job])
		}

		for _, job := range []string{"stays", "goes", "acked", "works"} {
			cached.addJob(job)
			live.addJob(job)
		}
		connect("stays", "")
		connect("goes", "")
		cached.bind(own.keyHash)
		live.bind(own.keyHash)
		connect("works", "c1")
		connect("acked", "c1")
		peers["acked"].send(resultOf("c1"))
		o.event(t)
		if err := sessions["acked"].Ack("c1"); err != nil {
			t.Fatal(err)
		}
		for _, gone := range []string{"goes", "works"} {
			for _, has := range []*objects{cached, live} {
				has.change(func() { delete(has.jobs, "ns/"+gone) })
			}
		}
		time.Sleep(dispatch.SweepInterval + time.Second)
		for job, want := range map[string]bool{"stays": true, "goes": false, "works": true, "acked": false} {
			if got := o.hub.Runner(job+"-uid") != nil; got != want {
				t.Errorf("%s is connected: %t", job, got)
			}
		}
		for len(o.events) > 0 {
			<-o.events
		}
		// The call has ended: the cache has it no more, and the reconciler is asked to answer.
		cached.change(func() { delete(cached.calls, "ns/call") })
		time.Sleep(dispatch.SweepInterval)
		if s := o.event(t); s != sessions["works"] || o.hub.Runner("works-uid") == nil {
			t.Errorf("the hub told of %s", s.Hello().Job)
		}
		live.change(func() { delete(live.calls, "ns/call") })
		time.Sleep(dispatch.SweepInterval)
		synctest.Wait()
		if o.hub.Runner("works-uid") != nil || o.hub.Len() != 1 {
			t.Errorf("%d are connected", o.hub.Len())
		}
	})
}

// The one that gives way isn't refused: it dials again.
func TestAnotherNamespacesRunnerGetsInWhenAllConnectionsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{Runners: 3})
		var greedy []*peer
		for _, job := range []string{"a", "b", "c"} {
			p := n.peer(t)
			p.hello(o, job, "")
			o.event(t)
			greedy = append(greedy, p)
		}
		p := n.peer(t)
		p.send(changedHello(t, o, "", func(h *wire.Hello) { h.Namespace = "modest" }))
		if m, err := greedy[2].receive(); err == nil {
			t.Errorf("got %+v", m)
		}
		for range 2 {
			o.event(t)
		}
		if o.hub.Runner("job-uid") == nil || o.hub.Runner("c-uid") != nil || o.hub.Len() != 3 {
			t.Errorf("%d are connected", o.hub.Len())
		}
	})
}
