package controllers_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/apicache"
)

// failSessionRead has the n-th read of the sessions' reconciler from now on fail; 0 for none. It returns how many there were.
func (w *world) failSessionRead(n int) (seen *int) {
	seen = new(int)
	fails := func(i int) bool { return i == n }
	w.sessions.Objects = apicache.Reader{Reader: failingReads{w.client, seen, fails}, Live: failingReads{shared.GetAPIReader(), seen, fails}}
	return seen
}

// Whatever a pass can't read: it ends with the error and writes nothing. The next pass goes on as if it had not been.
func TestAPassOverASessionThatCannotReadAllItNeedsWritesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*world) *v1alpha1.ToolSession{
		"deciding": func(w *world) *v1alpha1.ToolSession { return w.session("s") },
		"deciding within limits": func(w *world) *v1alpha1.ToolSession {
			w.edit(w.getEnvironment("env"), func(e *v1alpha1.ExecutionEnvironment) { limited(seconds(5), nil)(e) })
			return w.session("s")
		},
		"taking a waiting pod": func(w *world) *v1alpha1.ToolSession {
			env := w.getEnvironment("env")
			w.edit(env, warm(1))
			w.warmUp(env)
			return w.session("s")
		},
		"recording the runner": func(w *world) *v1alpha1.ToolSession {
			s := w.session("s")
			w.settle(s)
			w.startPod(s)
			return s
		},
		"ending a session whose pod can't start": func(w *world) *v1alpha1.ToolSession {
			s := w.session("s")
			w.settle(s)
			w.elapse(time.Hour)
			return s
		},
		"ending a session whose claim gets no volume": func(w *world) *v1alpha1.ToolSession {
			s := w.session("s", withWorkspace)
			w.settle(s)
			w.elapse(time.Hour)
			return s
		},
		"resuming": func(w *world) *v1alpha1.ToolSession {
			s, r := w.readySession("s", withWorkspace)
			r.exit(w, corev1.PodFailed)
			w.keep(s)
			return s
		},
		"losing the pod": func(w *world) *v1alpha1.ToolSession {
			s, r := w.readySession("s", withWorkspace)
			r.exit(w, corev1.PodFailed)
			return s
		},
		"suspending": func(w *world) *v1alpha1.ToolSession {
			s, _ := w.readySession("s", withWorkspace)
			w.editSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
			w.keep(s)
			return s
		},
		"letting the name go": func(w *world) *v1alpha1.ToolSession {
			s, _ := w.readySession("s", withWorkspace)
			w.deleteSession(s)
			w.keep(s)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.environment("env", asDefault)
			s := prepare(w)
			before := w.getSession(s).ResourceVersion
			for n := 1; ; n++ {
				seen := w.failSessionRead(n)
				err := w.keepError(s)
				if *seen < n {
					if err != nil {
						t.Fatal(err)
					}
					if n == 1 {
						t.Fatal("nothing was read")
					}
					break
				}
				if err == nil {
					t.Fatalf("read %d of the pass failed, and the pass didn't", n)
				}
				if now := w.getSession(s); now.ResourceVersion != before {
					t.Fatalf("read %d of the pass failed, and the pass wrote: %+v", n, now.Status)
				}
			}
			if now, found := w.find(s); found && now.ResourceVersion == before {
				t.Errorf("the pass without a failure did nothing: %+v", now.Status)
			}
		})
	}
}

func (w *world) getEnvironment(name string) *v1alpha1.ExecutionEnvironment {
	w.t.Helper()
	env := &v1alpha1.ExecutionEnvironment{}
	if err := shared.GetAPIReader().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, env); err != nil {
		w.t.Fatal(err)
	}
	return env
}
