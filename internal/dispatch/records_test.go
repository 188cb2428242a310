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
	case *batchv1.Job:
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

// record has an owner, whose runner is the one with a key.
func (o *objects) record(owner wire.Owner, keyHash string) {
	o.put("ns", owner, &v1alpha1.RunnerBinding{KeyHash: keyHash}, false)
}

// put makes an owner in a namespace.
func (o *objects) put(namespace string, owner wire.Owner, runner *v1alpha1.RunnerBinding, hasEnded bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	made := metav1.ObjectMeta{Namespace: namespace, Name: owner.Name, UID: types.UID(owner.UID)}
	if owner.IsCall() {
		call := &v1alpha1.ToolCall{ObjectMeta: made}
		if call.Status.Runner = runner; hasEnded {
			call.Status.Phase = v1alpha1.PhaseSucceeded
		}
		o.calls[namespace+"/"+owner.Name] = call
		return
	}
	session := &v1alpha1.ToolSession{ObjectMeta: made}
	if session.Status.Runner = runner; hasEnded {
		session.Status.Phase = v1alpha1.SessionEnded
	}
	o.sessions[namespace+"/"+owner.Name] = session
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
func isRefusedForGood(t *testing.T, p *peer, reason string) {
	t.Helper()
	m, err := p.receive()
	if err != nil || m.Refuse == nil || !m.Refuse.Final || !strings.Contains(m.Refuse.Reason, reason) {
		t.Errorf("got %+v, %v; want a final refusal because of %s", m, err, reason)
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
			p.waits(o, "job")
			isRefusedForGood(t, p, "Job")
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
		p.waits(o, "new")
		o.event(t)
		// One that the cache has costs the API server nothing.
		asked := live.asked
		cached.addJob("known")
		other := n.peer(t)
		other.waits(o, "known")
		o.event(t)
		if live.asked != asked {
			t.Error("the API server was asked for what the cache has")
		}
	})
}

func TestOnlyTheRecordedRunnerSpeaksForItsOwner(t *testing.T) {
	for name, c := range map[string]struct {
		record  func(o *objects, owner wire.Owner, key string)
		refused bool
	}{
		"its own": {(*objects).record, false},
		"its own, ended": {func(o *objects, owner wire.Owner, key string) {
			o.put("ns", owner, &v1alpha1.RunnerBinding{KeyHash: key}, true)
		}, false},
		"another runner's": {func(o *objects, owner wire.Owner, _ string) { o.record(owner, "another key") }, true},
		"nobody's":         {func(o *objects, owner wire.Owner, _ string) { o.put("ns", owner, nil, false) }, true},
		"one made anew": {func(o *objects, owner wire.Owner, key string) {
			owner.UID = "another"
			o.record(owner, key)
		}, true},
		"one that is gone": {func(*objects, wire.Owner, string) {}, true},
		"one elsewhere": {func(o *objects, owner wire.Owner, key string) {
			o.put("ns2", owner, &v1alpha1.RunnerBinding{KeyHash: key}, false)
		}, true},
		"one that is empty": {func(o *objects, owner wire.Owner, _ string) { o.record(owner, "") }, true},
		"one of the other kind": {func(o *objects, owner wire.Owner, key string) {
			kinds := map[wire.OwnerKind]wire.OwnerKind{wire.KindCall: wire.KindSession, wire.KindSession: wire.KindCall}
			owner.Kind = kinds[owner.Kind]
			o.record(owner, key)
		}, true},
	} {
		for what, owner := range owners {
			for _, inCache := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					n, o, cached, live := recordedBubble(t, dispatch.Limits{})
					own := newProcess(t)
					c.record(live, owner, own.keyHash)
					if inCache {
						c.record(cached, owner, own.keyHash)
					}
					// There is a Job: that makes no difference.
					live.addJob("job")
					p := own.connect(t, n)
					if !c.refused {
						p.hasCall(o, "job", owner)
						if got, _ := o.event(t).Owner(); got != owner {
							t.Errorf("%s, %s: it is the runner of %+v", what, name, got)
						}
						return
					}
					p.send(helloOf(o, wire.Version, "job", &owner))
					isRefusedForGood(t, p, "has another runner")
					synctest.Wait()
					if o.hub.Len() != 0 || len(o.events) != 0 {
						t.Errorf("%s, %s: it is served", what, name)
					}
				})
			}
		}
	}
}

// A runner that holds a result must not lose it to an outage; one that waits tries again.
func TestAnAPIServerThatDoesNotAnswerCostsNoResult(t *testing.T) {
	for name, outage := range map[string]func(*objects){
		"down":   func(o *objects) { o.fails = errors.New("down") },
		"silent": func(o *objects) { o.hangs = true },
	} {
		for what, owner := range owners {
			synctest.Test(t, func(t *testing.T) {
				n, o, cached, live := recordedBubble(t, dispatch.Limits{})
				live.change(func() { outage(live) })
				holds := n.peer(t)
				holds.hasCall(o, "holds", owner)
				session := o.event(t)
				waits := n.peer(t)
				waits.waits(o, "waits")
				if m, err := waits.receive(); err == nil {
					t.Errorf("%s: a runner that waits got %+v", name, m)
				}
				cached.addJob("known")
				known := n.peer(t)
				known.waits(o, "known")
				if got := o.event(t).Hello().Job; got != "known" {
					t.Errorf("%s: %s was served", name, got)
				}
				holds.send(resultOf("c1"))
				if o.event(t) != session || session.ResultOf("c1") == nil {
					t.Errorf("%s, %s: the result didn't arrive", name, what)
				}
				// It stays while nobody can tell, and goes when the API server says that the claim was false.
				l := &line{peer: holds}
				go l.read()
				keepPinging(t, holds)
				time.Sleep(3 * dispatch.SweepInterval)
				if o.hub.Runner("holds-uid") != session {
					t.Errorf("%s, %s: it was turned away in the outage", name, what)
				}
				live.change(func() { live.fails, live.hangs = nil, false })
				time.Sleep(dispatch.SweepInterval)
				expect(t, name+", "+what, l.hears(), "refuse for good")
				if o.hub.Runner("holds-uid") != nil || !l.isOver() {
					t.Errorf("%s, %s: a runner that nothing records stays", name, what)
				}
			})
		}
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
			body := changedHello(t, o, func(h *wire.Hello) {
				h.Namespace, h.Job, h.JobUID = "flood", fmt.Sprint("gone-", i), fmt.Sprint(i)
			})
			asking.Go(func() { _ = p.write(body); p.awaitEnd() })
		}
		synctest.Wait()
		p := n.peer(t)
		began := time.Now()
		p.waits(o, "job")
		if o.event(t).Hello().Job != "job" {
			t.Error("another runner was served")
		}
		if took := time.Since(began); took > time.Second/10 {
			t.Errorf("it waited %s", took)
		}
	})
}

func TestAConnectionEndsWithItsJobOrItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, o, cached, live := recordedBubble(t, dispatch.Limits{})
		own := newProcess(t)
		sessions := map[string]*dispatch.Runner{}
		peers := map[string]*peer{}
		connect := func(job string, hasCall bool) {
			peers[job] = own.connect(t, n)
			if hasCall {
				peers[job].hasCall(o, job, theCall)
			} else {
				peers[job].waits(o, job)
			}
			sessions[job] = o.event(t)
			keepAlive(t, peers[job])
		}

		for _, job := range []string{"stays", "goes", "acked", "works"} {
			cached.addJob(job)
			live.addJob(job)
		}
		connect("stays", false)
		connect("goes", false)
		cached.record(theCall, own.keyHash)
		live.record(theCall, own.keyHash)
		connect("works", true)
		connect("acked", true)
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
			p.waits(o, job)
			o.event(t)
			greedy = append(greedy, p)
		}
		p := n.peer(t)
		p.send(changedHello(t, o, func(h *wire.Hello) { h.Namespace = "modest" }))
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
