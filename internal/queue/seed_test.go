package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func running(entries ...Entry) func(context.Context) (Snapshot, error) {
	return func(context.Context) (Snapshot, error) { return Snapshot{Running: entries}, nil }
}

func mustSeed(t *testing.T, q *Queues, read func(context.Context) (Snapshot, error)) {
	t.Helper()
	if err := q.Seed(t.Context(), env, read); err != nil {
		t.Fatal(err)
	}
}

func TestCallsOfAnEarlierProcessCount(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	mustSeed(t, r.Queues, running(newEntry("a", 0), newEntry("a", 1)))
	mustSeed(t, r.Queues, func(context.Context) (Snapshot, error) {
		t.Error("a seeded environment is read again")
		return Snapshot{}, nil
	})
	r.SetRunning(env, newEntry("a", 1))
	if r.admit(2, newEntry("b", 2)) {
		t.Error("calls of an earlier process don't count")
	}
	if !r.admit(2, newEntry("a", 1)) {
		t.Error("a call of an earlier process lost its slot")
	}
	if got := r.release(newEntry("a", 0)); !slices.Equal(got, []string{"b-2"}) {
		t.Errorf("woken %q", got)
	}
}

func TestSeededWaitingCallsKeepTheirOrderWhicheverAsksFirst(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	mustSeed(t, r.Queues, func(context.Context) (Snapshot, error) {
		return Snapshot{Waiting: []Entry{newEntry("a", 3), newEntry("a", 1), newEntry("a", 2)}}, nil
	})
	if r.admit(1, newEntry("a", 3)) || !slices.Equal(r.woken, []string{"a-1"}) {
		t.Errorf("woken %q", r.woken)
	}
	if !r.admit(1, newEntry("a", 1)) {
		t.Error("the call that was woken isn't admitted")
	}
}

func TestAFailedReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	broken := errors.New("broken")
	for range 3 {
		if err := r.Seed(t.Context(), env, func(context.Context) (Snapshot, error) { return Snapshot{}, broken }); !errors.Is(err, broken) {
			t.Fatalf("seeded from a failed read: %v", err)
		}
	}
	mustSeed(t, r.Queues, running(newEntry("a", 0)))
	if r.admit(1, newEntry("b", 1)) {
		t.Error("the calls of the successful read don't count")
	}
}

// The read may take as long as it likes: everything else goes on meanwhile.
func TestAReadHoldsUpNoOtherEnvironment(t *testing.T) {
	t.Parallel()
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	r := newRecorder()
	mustSeed(t, r.Queues, func(ctx context.Context) (Snapshot, error) {
		if !r.mu.TryLock() {
			t.Error("the read holds the lock")
			return Snapshot{}, nil
		}
		r.mu.Unlock()
		if err := r.Seed(ctx, other, running(newEntry("b", 0))); err != nil {
			t.Error(err)
		}
		if r.Admit(other, 1, newEntry("a", 1)) {
			t.Error("a call of the other environment is admitted over its limit")
		}
		if got := r.release(newEntry("b", 0)); !slices.Equal(got, []string{"a-1"}) {
			t.Errorf("woken %q", got)
		}
		return Snapshot{}, nil
	})
}

func TestWhatHappensDuringAReadIsNewerThanItsSnapshot(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	again := newEntry("a", 2)
	again.UID = "another"
	mustSeed(t, r.Queues, func(context.Context) (Snapshot, error) {
		r.Release(newEntry("a", 0).Call)
		r.Release(newEntry("a", 1).Call)
		r.Release(types.NamespacedName{Namespace: "elsewhere", Name: "a-3"})
		r.SetRunning(env, again)
		return Snapshot{
			Running: []Entry{newEntry("a", 0), newEntry("a", 2), newEntry("a", 3)},
			Waiting: []Entry{newEntry("a", 1), newEntry("a", 2)},
		}, nil
	})
	if running, waiting := r.count(); running != 2 || waiting != 0 {
		t.Errorf("%d run and %d wait, want the calls a-2 and a-3 to run", running, waiting)
	}
	if r.environments[env].running[again.Call].UID != again.UID {
		t.Error("an older call of the same name replaced the newer one")
	}
	for _, n := range []int{2, 3} {
		r.Release(newEntry("a", n).Call)
	}
	r.expectEmpty(t)
}

func TestSeedsOfOneEnvironmentShareARead(t *testing.T) {
	broken := errors.New("broken")
	for name, want := range map[string]error{"that succeeds": nil, "that fails": broken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := New(func(types.NamespacedName) {})
				reads := 0
				proceed := make(chan struct{})
				errs := make(chan error)
				for range 5 {
					go func() {
						errs <- q.Seed(t.Context(), env, func(context.Context) (Snapshot, error) {
							reads++
							<-proceed
							return Snapshot{}, want
						})
					}()
				}
				synctest.Wait()
				close(proceed)
				for range 5 {
					if err := <-errs; !errors.Is(err, want) {
						t.Errorf("error %v, want %v", err, want)
					}
				}
				if reads != 1 {
					t.Errorf("%d reads", reads)
				}
			})
		})
	}
}

func TestWaitingForASharedReadEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(func(types.NamespacedName) {})
		proceed := make(chan struct{})
		first := make(chan error)
		go func() {
			first <- q.Seed(t.Context(), env, func(context.Context) (Snapshot, error) {
				<-proceed
				return Snapshot{}, nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Seed(ctx, env, running()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		close(proceed)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestAReadThatPanicsIsTriedAgain(t *testing.T) {
	t.Parallel()
	q := New(func(types.NamespacedName) {})
	func() {
		defer func() { _ = recover() }()
		_ = q.Seed(t.Context(), env, func(context.Context) (Snapshot, error) { panic("broken") })
	}()
	if len(q.seeding) != 0 || q.environments[env].seeded {
		t.Error("a read that panicked counts as one")
	}
	mustSeed(t, q, running())
}
