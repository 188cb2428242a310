package supervisor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/output/kept"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/supervisor"
)

// hung is a stream whose disk doesn't answer.
type hung struct {
	*kept.Stream
	repaired chan struct{}
}

func (h *hung) ReadAt(context.Context, []byte, int64) (int, error) {
	<-h.repaired
	return 0, context.Canceled
}

// A disk that hangs holds up who reads from it, and not the call's result.
func TestAReadThatHangsDoesNotKeepARunnerFromComingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &hung{kept.New(kept.Limits{Memory: 100}), make(chan struct{})}
		over := make(chan struct{})
		b := start(t, theCall, func(own *bench) {
			s := own.Supervisor
			s.Outputs = supervisor.NewOutputs()
			s.Begin = func(*wire.Begin) supervisor.ExecuteFunc {
				return func(_ context.Context, a *wire.Assignment) *wire.Result {
					s.Outputs.Set(a.CallUID, stream, stream)
					<-over
					return &wire.Result{CallUID: a.CallUID, Outcome: result.Outcome{Reason: result.Completed}}
				}
			}
		})
		p, _ := b.connect()
		p.in <- begin(theCall)
		p.in <- assigned("c1")
		synctest.Wait()
		p.in <- readOf(1, 0, 10, false)
		synctest.Wait()
		p.Close()
		came := make(chan *pipe, 1)
		go func() {
			p, _ := b.connect()
			came <- p
		}()
		time.Sleep(10 * time.Second)
		if len(came) == 0 {
			t.Error("the runner doesn't come back")
		} else {
			close(over)
			if m := <-(<-came).out; m.Result == nil {
				t.Errorf("got %+v", m)
			}
		}
		close(stream.repaired)
		b.stop()
	})
}
