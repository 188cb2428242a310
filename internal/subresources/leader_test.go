package subresources

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
)

// hangingLeases are those of an API server that doesn't answer.
type hangingLeases struct {
	coordinationv1client.LeaseInterface
}

func (hangingLeases) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Who asks where the leader is doesn't wait for the API server for ever, nor for others who do.
func TestWhereTheLeaderIsIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &LeaseLeader{Leases: hangingLeases{}, Elected: make(chan struct{}), Clock: clock.RealClock{}}
		const many = 20
		ended := make(chan error, many)
		for range many {
			go func() {
				_, err := l.Address(t.Context())
				ended <- err
			}()
		}
		synctest.Wait()
		hasty, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if _, err := l.Address(hasty); !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("one that has gone: %v after %s", err, time.Since(began))
		}
		time.Sleep(leaseTimeout + time.Second)
		if len(ended) != many {
			t.Errorf("%d of %d have an answer", len(ended), many)
		}
		for range len(ended) {
			if err := <-ended; err == nil {
				t.Error("there is a leader")
			}
		}
	})
}
