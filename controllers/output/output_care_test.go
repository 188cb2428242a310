package output_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	kept "toolcall.dev/operator/controllers/output"
	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/testing/fixture"
)

// care is what looks after the output of calls that have ended.
func (s *storing) care() *kept.OutputCare {
	s.T.Helper()
	watching, err := client.NewWithWatch(fixture.ApiServer, client.Options{Scheme: fixture.Shared.GetScheme()})
	if err != nil {
		s.T.Fatal(err)
	}
	return &kept.OutputCare{Outputs: s.Outputs, Look: func(call types.NamespacedName) { s.done <- call }, Client: watching, Namespaces: []string{s.Namespace}, Clock: clock.RealClock{}, Log: logr.Discard()}
}

func (s *storing) startCare() {
	s.T.Helper()
	care := s.care()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = care.Start(ctx) })
	s.T.Cleanup(func() { cancel(); running.Wait() })
}

func TestOutputGoesWithItsCall(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	s.startCare()
	small, _ := s.ends("small", []byte("small"), nil)
	s.reconcile(small)
	first, _ := s.ends("first", noise(1, 1<<20), nil)
	s.settle(first)
	second, _ := s.ends("second", nil, noise(2, 1<<20))
	fixture.Eventually(t, func() bool { s.reconcile(second); return s.Get(second).Status.Phase.Terminal() })
	for _, call := range []*v1alpha1.ToolCall{small, first} {
		if err := s.Client.Delete(t.Context(), call, client.DisableReadYourWritesConsistency); err != nil {
			t.Fatal(err)
		}
	}
	fixture.Eventually(t, func() bool { return s.objects() == 2 })
	// The time to stay of the other is up.
	s.Clock.Set(s.Clock.Now().Add(2 * time.Hour))
	s.reconcile(second)
	fixture.Eventually(t, func() bool { return s.objects() == 0 })
}

func TestANewLeaderLooksAtCallsWhoseOutputIsBeingStored(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	back := s.away()
	defer back()
	call, p := s.endsWithoutItsStore(noise(3, 1<<20))
	p.Conn.Close()
	s.crash()
	s.startCare()
	if woken := fixture.Next(t, s.done); woken != client.ObjectKeyFromObject(call) {
		t.Errorf("it looks at %s", woken)
	}
}

// An operator that is started without the store says that what it was to have is lost.
func TestWithoutItsStoreOutputIsLost(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	defer s.away()()
	call, p := s.endsWithoutItsStore(noise(3, 1<<20))
	p.Conn.Close()
	s.crash()
	s.Outputs.Close()
	s.Outputs = nil
	s.Rebuild()
	s.startCare()
	if woken := fixture.Next(t, s.done); woken != client.ObjectKeyFromObject(call) {
		t.Errorf("it looks at %s", woken)
	}
	s.settle(call)
	s.expectStream(call, v1alpha1.StreamLost, 0, v1alpha1.ReasonOutputLost)
}

func TestTheSweepRemovesOldOutputWithoutACall(t *testing.T) {
	s := newStoring(t)
	s.Environment("env", fixture.AsDefault)
	there, _ := s.ends("there", noise(4, 1<<20), nil)
	s.settle(there)
	gone, _ := s.ends("gone", noise(5, 1<<20), nil)
	s.settle(gone)
	young, _ := s.ends("young", noise(6, 1<<20), nil)
	s.settle(young)
	for _, call := range []*v1alpha1.ToolCall{gone, young} {
		if err := s.Client.Delete(t.Context(), call, client.DisableReadYourWritesConsistency); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * time.Hour)
	for _, call := range []*v1alpha1.ToolCall{there, gone} {
		files, err := filepath.Glob(filepath.Join(s.folder, "calls", string(call.UID), "*", "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%d objects, %v", len(files), err)
		}
		for _, file := range files {
			if err := os.Chtimes(file, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	if removed, err := s.care().Sweep(t.Context()); err != nil || removed != 1 {
		t.Errorf("the output of %d calls was removed, %v", removed, err)
	}
	for call, want := range map[*v1alpha1.ToolCall]bool{there: true, gone: false, young: true} {
		_, err := s.store.Open(t.Context(), s.key(call, output.Stdout))
		if (err == nil) != want {
			t.Errorf("of %s: %v", call.Name, err)
		}
	}
}
