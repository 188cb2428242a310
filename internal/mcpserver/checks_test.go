package mcpserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/mcpserver/identity"
)

// laterReviewer can act for callers at the third check.
type laterReviewer struct{ checks int }

var errNotYet = errors.New("not yet")

func (*laterReviewer) Review(context.Context, string) (*identity.Requester, error) {
	return nil, errNotYet
}

func (r *laterReviewer) Check(context.Context) error {
	if r.checks++; r.checks < 3 {
		return errNotYet
	}
	return nil
}

// The server is ready once it can act for its callers.
func TestReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reviewer := &laterReviewer{}
		c := newChecks(reviewer, quiet())
		if err := c.result(); !errors.Is(err, errChecking) {
			t.Errorf("before the first check: %v", err)
		}
		go c.run(t.Context())
		synctest.Wait()
		if err := c.result(); !errors.Is(err, errNotYet) {
			t.Errorf("after a check that failed: %v", err)
		}
		time.Sleep(10 * checkInterval)
		synctest.Wait()
		if err := c.result(); err != nil || reviewer.checks != 3 {
			t.Errorf("after %d checks: %v", reviewer.checks, err)
		}
	})
}
