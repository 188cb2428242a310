package calls

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
)

// The program must not exit before the request that cancels the call has an answer.
func TestTheSecondInterruptWaitsForTheCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := NewInterrupts(t.Context(), make(chan os.Signal, 2))
		defer i.Close()
		release, asked := make(chan struct{}), 0
		i.onInterrupt(func(context.Context, string) { asked++; <-release })
		i.signals <- os.Interrupt
		synctest.Wait()
		if asked != 1 || i.creating.Err() == nil || i.Waiting.Err() != nil {
			t.Fatalf("after the first: asked %d times, %v, %v", asked, i.creating.Err(), i.Waiting.Err())
		}
		i.signals <- os.Interrupt
		synctest.Wait()
		if i.Waiting.Err() != nil {
			t.Fatal("it left before the request was through")
		}
		close(release)
		synctest.Wait()
		if i.Waiting.Err() == nil || asked != 1 {
			t.Errorf("after the second: %v, asked %d times", i.Waiting.Err(), asked)
		}
	})
}

// A signal during the creation cancels the call if it was created.
func TestAnInterruptDuringTheCreationCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := NewInterrupts(t.Context(), make(chan os.Signal, 2))
		defer i.Close()
		i.signals <- os.Interrupt
		synctest.Wait()
		asked := 0
		i.onInterrupt(func(context.Context, string) { asked++ })
		if asked != 1 || i.Waiting.Err() != nil {
			t.Errorf("asked %d times, %v", asked, i.Waiting.Err())
		}
	})
}
