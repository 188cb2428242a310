package toolsession_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/testing/fixture"
)

// Whatever a pass can't read: it ends with the error and writes nothing. The next pass goes on as if it had not been.
func TestAPassOverASessionThatCannotReadAllItNeedsWritesNothing(t *testing.T) {
	for name, prepare := range map[string]func(*fixture.World) *v1alpha1.ToolSession{
		"deciding": func(w *fixture.World) *v1alpha1.ToolSession { return w.Session("s") },
		"deciding within limits": func(w *fixture.World) *v1alpha1.ToolSession {
			w.Edit(w.GetEnvironment("env"), func(e *v1alpha1.ExecutionEnvironment) { limited(seconds(5), nil)(e) })
			return w.Session("s")
		},
		"taking a waiting pod": func(w *fixture.World) *v1alpha1.ToolSession {
			env := w.GetEnvironment("env")
			w.Edit(env, fixture.Warm(1))
			w.WarmUp(env)
			return w.Session("s")
		},
		"recording the runner": func(w *fixture.World) *v1alpha1.ToolSession {
			s := w.Session("s")
			w.Settle(s)
			w.StartPod(s)
			return s
		},
		"ending a session whose pod can't start": func(w *fixture.World) *v1alpha1.ToolSession {
			s := w.Session("s")
			w.Settle(s)
			w.Elapse(time.Hour)
			return s
		},
		"ending a session whose claim gets no volume": func(w *fixture.World) *v1alpha1.ToolSession {
			s := w.Session("s", fixture.WithWorkspace)
			w.Settle(s)
			w.Elapse(time.Hour)
			return s
		},
		"resuming": func(w *fixture.World) *v1alpha1.ToolSession {
			s, r := w.ReadySession("s", fixture.WithWorkspace)
			r.Exit(w, corev1.PodFailed)
			w.Keep(s)
			return s
		},
		"losing the pod": func(w *fixture.World) *v1alpha1.ToolSession {
			s, r := w.ReadySession("s", fixture.WithWorkspace)
			r.Exit(w, corev1.PodFailed)
			return s
		},
		"suspending": func(w *fixture.World) *v1alpha1.ToolSession {
			s, _ := w.ReadySession("s", fixture.WithWorkspace)
			w.EditSession(s, func(spec *v1alpha1.ToolSessionSpec) { spec.Suspend = true })
			w.Keep(s)
			return s
		},
		"letting the name go": func(w *fixture.World) *v1alpha1.ToolSession {
			s, _ := w.ReadySession("s", fixture.WithWorkspace)
			w.DeleteSession(s)
			w.Keep(s)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := fixture.NewWorld(t)
			w.Environment("env", fixture.AsDefault)
			s := prepare(w)
			before := w.GetSession(s).ResourceVersion
			for n := 1; ; n++ {
				seen := w.FailSessionRead(n)
				err := w.KeepError(s)
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
				if now := w.GetSession(s); now.ResourceVersion != before {
					t.Fatalf("read %d of the pass failed, and the pass wrote: %+v", n, now.Status)
				}
			}
			if now, found := w.Find(s); found && now.ResourceVersion == before {
				t.Errorf("the pass without a failure did nothing: %+v", now.Status)
			}
		})
	}
}
