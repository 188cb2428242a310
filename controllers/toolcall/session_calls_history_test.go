package toolcall_test

import (
	"context"
	"sync"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/testing/fixture"
)

// history has every version of the calls of a namespace.
type history struct {
	w      *fixture.World
	ledger *fixture.Ledger

	mu    sync.Mutex
	calls map[string]*callHistory
}

// callHistory is what is known of one call.
type callHistory struct {
	first, last *v1alpha1.ToolCall
	// cancelled says that somebody cancelled or deleted it, gone that it isn't there any more. One that somebody edited before
	// the operator wrote what it waits for may lose its place to later ones when the operator starts anew.
	cancelled, edited, gone bool
}

// watchCalls records until the test ends.
func watchCalls(w *fixture.World) *history {
	w.T.Helper()
	h := &history{w: w, calls: map[string]*callHistory{}}
	c, err := client.NewWithWatch(fixture.ApiServer, client.Options{Scheme: fixture.Shared.GetScheme()})
	if err != nil {
		w.T.Fatal(err)
	}
	watching, err := c.Watch(context.Background(), &v1alpha1.ToolCallList{}, client.InNamespace(w.Namespace))
	if err != nil {
		w.T.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watching.ResultChan() {
			if call, ok := e.Object.(*v1alpha1.ToolCall); ok {
				h.saw(call, e.Type == watch.Deleted)
			}
		}
	}()
	w.T.Cleanup(func() {
		watching.Stop()
		<-done
	})
	return h
}

// saw takes a version of a call. The end of a call never changes.
func (h *history) saw(call *v1alpha1.ToolCall, gone bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.calls[string(call.UID)]
	if one == nil {
		one = &callHistory{first: call, last: call}
		h.calls[string(call.UID)] = one
	}
	if one.last.Status.Phase.Terminal() {
		if diff := cmp.Diff(one.last.Status, call.Status); diff != "" {
			h.w.T.Errorf("the end of %s changed: %s", call.Name, diff)
		}
	}
	one.last, one.gone = call, one.gone || gone
	if call.DeletionTimestamp != nil {
		one.cancelled = true
	}
}

func (h *history) created(call *v1alpha1.ToolCall) { h.saw(call.DeepCopy(), false) }

func (h *history) wasCancelled(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.calls[uid]; one != nil {
		one.cancelled = true
	}
}

func (h *history) wasEdited(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.calls[uid]; one != nil {
		one.edited = true
	}
}

func (h *history) of(uid string) callHistory {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.calls[uid]; one != nil {
		return *one
	}
	return callHistory{}
}

// now reads the call of a UID past the cache; nil when it is gone.
func (h *history) now(uid string) *v1alpha1.ToolCall {
	known := h.of(uid)
	if known.first == nil {
		h.w.T.Errorf("nobody created the call %s", uid)
		return nil
	}
	call := &v1alpha1.ToolCall{}
	err := fixture.Shared.GetAPIReader().Get(context.Background(), client.ObjectKeyFromObject(known.first), call)
	if client.IgnoreNotFound(err) != nil {
		h.w.T.Fatal(err)
	}
	if err != nil || string(call.UID) != uid {
		return nil
	}
	return call
}

// checkAck says that a result which is acknowledged is written, or nobody is left to read it.
func (h *history) checkAck(p *fixture.Process, uid string) {
	c := p.Find(uid)
	if c == nil || c.Result == nil || c.Result.Outcome.Reason == result.SessionEnded && !c.Result.Outcome.Started {
		// The call may go on in the next pod.
		return
	}
	if call := h.now(uid); call != nil && !call.Status.Phase.Terminal() {
		h.w.T.Errorf("the result of %s is acknowledged, and the call is %s", call.Name, call.Status.Phase)
	}
}

// checkStart says that no call overtakes an earlier one.
func (h *history) checkStart(p *fixture.Process, c *fixture.ProcessCall) {
	this := h.of(c.UID)
	if c.Background || this.first == nil {
		return
	}
	h.mu.Lock()
	var earlier []string
	for uid, other := range h.calls {
		f := other.first
		if f.Spec.SessionRef.Name == this.first.Spec.SessionRef.Name && !f.Spec.Background && !other.cancelled && !other.edited && !other.gone && revision(f) < revision(this.first) {
			earlier = append(earlier, uid)
		}
	}
	h.mu.Unlock()
	for _, uid := range earlier {
		_, taken := p.Taken[uid]
		call := h.now(uid)
		ref := ""
		if call != nil {
			ref = call.Spec.SessionRef.UID
		}
		if taken || len(h.ledger.Starts[uid]) > 0 || call == nil || call.Status.Phase.Terminal() || ref != "" && ref != p.Begun.UID {
			continue
		}
		h.w.T.Errorf("%s is started before %s", c.Name, call.Name)
	}
}
