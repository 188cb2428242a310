package dispatch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// What holds room for a large frame must bring it.
func TestALargeResultArrivesSteadilyOrIsGivenUp(t *testing.T) {
	const size = wire.MaxResult / dispatch.MinResultRate * dispatch.MinResultRate
	for rate, taken := range map[int]bool{dispatch.MinResultRate: true, dispatch.MinResultRate / 4: false} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{})
			p := n.peer(t)
			p.hasCall(o, "job", theCall)
			runner := o.event(t)
			go p.awaitEnd()
			p.announce(size)
			body := []byte(largeResultOf("c1", size))
			began := time.Now()
			var err error
			for len(body) > 0 && err == nil {
				_, err = p.Write(body[:rate])
				body = body[rate:]
				time.Sleep(time.Second)
			}
			if (err == nil) != taken {
				t.Errorf("%d bytes a second: %v after %s", rate, err, time.Since(began))
			}
			if o.event(t); (runner.ResultOf("c1") != nil) != taken {
				t.Errorf("%d bytes a second: result %v", rate, runner.ResultOf("c1"))
			}
			if took := time.Since(began); !taken && took > 2*dispatch.ResultGrace {
				t.Errorf("%d bytes a second: given up after %s", rate, took)
			}
		})
	}
}

func TestASmallResultDoesNotWaitForLargeOnes(t *testing.T) {
	const size = 100 << 10
	synctest.Test(t, func(t *testing.T) {
		n, o := bubble(t, dispatch.Limits{ResultBytes: size, BytesPerNamespace: size})
		go reporter(t, n, o, "holds", size).awaitEnd()
		o.event(t)
		go reporter(t, n, o, "waits", size).awaitEnd()
		for _, small := range []int{len(resultOf("c1")), wire.MaxControl + 1, dispatch.SmallResult} {
			job := fmt.Sprint("small-", small)
			go reporter(t, n, o, job, small).awaitEnd()
			synctest.Wait()
			if len(o.events) != 1 || o.event(t).ResultOf("c1") == nil {
				t.Errorf("a result of %d bytes waits", small)
			}
		}
		reporter(t, n, o, "large", dispatch.SmallResult+1)
		if len(o.events) != 0 {
			t.Error("a larger one has room that there isn't")
		}
	})
}

// A runner that waits for room hears that the operator is alive, whatever the size of its result.
func TestARunnerThatWaitsWithASmallResultHearsPongs(t *testing.T) {
	for _, size := range []int{len(resultOf("c1")), 10 << 10} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{SmallResultBytes: int64(size)})
			go reporter(t, n, o, "holds", size).awaitEnd()
			first := o.event(t)
			late := reporter(t, n, o, "late", size)
			if len(o.events) != 0 {
				t.Fatal("a result arrived that there is no room for")
			}
			for range 20 {
				began := time.Now()
				if m, err := late.receive(); err != nil || m.Pong == nil || time.Since(began) > wire.PingInterval {
					t.Fatalf("got %+v, %v after %s", m, err, time.Since(began))
				}
			}
			if err := first.Ack("c1"); err != nil {
				t.Fatal(err)
			}
			if s := o.event(t); s.Hello().Job != "late" || s.ResultOf("c1") == nil {
				t.Errorf("%s has result %v", s.Hello().Job, s.ResultOf("c1"))
			}
			go late.awaitEnd()
		})
	}
}
