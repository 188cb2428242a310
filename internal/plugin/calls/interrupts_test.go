package calls

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The program must not exit before the request that cancels the call has an answer, unless the user insists.
func TestTheSecondInterruptWaitsForTheCancellation(t *testing.T) {
	t.Parallel()
	for name, isAnswered := range map[string]bool{"an answer": true, "a third interrupt": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := NewInterrupts(t.Context(), make(chan os.Signal, 2), io.Discard)
				defer i.Close()
				release, asked := make(chan struct{}), 0
				i.onInterrupt(func(ctx context.Context, _ string) {
					asked++
					select {
					case <-release:
					case <-ctx.Done():
					}
				})
				i.signals <- os.Interrupt
				synctest.Wait()
				if asked != 1 || i.Waiting.Err() != nil {
					t.Fatalf("after the first: asked %d times, %v", asked, i.Waiting.Err())
				}
				i.signals <- os.Interrupt
				synctest.Wait()
				if i.Waiting.Err() != nil {
					t.Fatal("it left before the request was through")
				}
				if isAnswered {
					close(release)
				} else {
					i.signals <- os.Interrupt
				}
				synctest.Wait()
				if i.Waiting.Err() == nil || asked != 1 {
					t.Errorf("in the end: %v, asked %d times", i.Waiting.Err(), asked)
				}
			})
		})
	}
}

// A signal during the creation cancels the call once it is known. Only a third one stops before that.
func TestAnInterruptDuringTheCreationCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := NewInterrupts(t.Context(), make(chan os.Signal, 2), io.Discard)
		defer i.Close()
		i.signals <- os.Interrupt
		synctest.Wait()
		asked := 0
		i.onInterrupt(func(context.Context, string) { asked++ })
		synctest.Wait()
		if asked != 1 || i.Waiting.Err() != nil {
			t.Errorf("asked %d times, %v", asked, i.Waiting.Err())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		i := NewInterrupts(t.Context(), make(chan os.Signal, 2), io.Discard)
		defer i.Close()
		for came := 1; came <= 3; came++ {
			i.signals <- os.Interrupt
			synctest.Wait()
			if stopped := i.Waiting.Err() != nil; stopped != (came == 3) {
				t.Errorf("after signal %d, stopped: %t", came, stopped)
			}
		}
	})
}

// One signal is all that comes of a CI system, so it must end a request that nobody answers.
func TestACreationIsCutOffSomeTimeAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var errs strings.Builder
		i := NewInterrupts(t.Context(), make(chan os.Signal, 2), &errs)
		defer i.Close()
		i.signals <- os.Interrupt
		time.Sleep(cancelTimeout - time.Second)
		synctest.Wait()
		if i.Waiting.Err() != nil || !strings.Contains(errs.String(), "interrupted: the call is cancelled once it is created") {
			t.Errorf("%v: %s", i.Waiting.Err(), errs.String())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if i.Waiting.Err() == nil {
			t.Error("the request goes on")
		}
	})
}
