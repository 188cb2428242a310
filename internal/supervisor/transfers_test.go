package supervisor

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
)

// Transfers of connections before can hang in a file system, and keep their places.
func TestATransferThatGetsNoPlaceFails(t *testing.T) {
	places := transferSlots
	t.Cleanup(func() { transferSlots = places })
	synctest.Test(t, func(t *testing.T) {
		transferSlots = make(chan struct{})
		one := &transfer{asked: &wire.Transfer{Kind: wire.TransferRead}, ctx: t.Context()}
		began := time.Now()
		if _, err := one.do(); !errors.Is(err, errNoSlot) || time.Since(began) != slotWait {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
