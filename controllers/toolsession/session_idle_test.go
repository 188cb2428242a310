package toolsession_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// between runs something before a session's status is written, which fails then if it says so.
type between struct {
	client.Client
	do func() error
}

// Status implements client.Client.
func (b *between) Status() client.SubResourceWriter { return &betweenStatus{b.Client.Status(), b} }

type betweenStatus struct {
	client.SubResourceWriter
	b *between
}

// Patch implements client.SubResourceWriter.
func (s *betweenStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, ok := o.(*v1alpha1.ToolSession); ok && s.b.do != nil {
		do := s.b.do
		s.b.do = nil
		if err := do(); err != nil {
			return err
		}
	}
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// A call that comes while the end for idleness is being written isn't handed over, so that it isn't cancelled for that. When
// the write fails, it is.
func TestIdlenessCancelsNoCallThatJustCame(t *testing.T) {
	for name, fails := range map[string]error{"written": nil, "not written": context.DeadlineExceeded} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.VouchForRequesters()
			w.Environment("env", fixture.AsDefault)
			b := &between{Client: w.Client}
			w.Use = b
			w.Rebuild()
			s, _ := w.ReadySession("s", func(s *v1alpha1.ToolSession) { s.Spec.IdleTimeoutSeconds = ptr.To[int32](60) })
			w.Elapse(61 * time.Second)
			var call *v1alpha1.ToolCall
			b.do = func() error {
				call = w.CallIn(s, "c")
				w.Reconcile(call)
				if _, has := w.HeldIn(s, call); has {
					t.Error("the call is handed over")
				}
				return fails
			}
			if err := w.KeepError(s); (err != nil) != (fails != nil) {
				t.Fatal(err)
			}
			w.Elapse(time.Second)
			w.Reconcile(call)
			_, has := w.HeldIn(s, call)
			switch now := w.Get(call).Status; {
			case fails != nil && !has:
				t.Error("the session isn't ended, and takes no calls")
			case fails == nil && (now.Reason != v1alpha1.ReasonSessionEnded || !ptr.Deref(now.RetrySafe, false)):
				t.Errorf("the call is %s/%s, retrySafe %v", now.Phase, now.Reason, now.RetrySafe)
			}
		})
	}
}
