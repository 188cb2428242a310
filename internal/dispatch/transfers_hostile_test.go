package dispatch_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// A runner that says what no honest one says of a transfer loses its connection.
func TestARunnerThatLiesAboutATransferIsLeft(t *testing.T) {
	read := wire.Transfer{Kind: wire.TransferRead, Path: "x"}
	write := wire.Transfer{Kind: wire.TransferWrite, Path: "x"}
	summed := `{"state":{"id":1,"size":9,"sha256":"` + strings.Repeat("0", 64) + `"}}`
	for name, c := range map[string]struct {
		open wire.Transfer
		said []string
	}{
		"of none":                {read, []string{`{"state":{"id":7}}`}},
		"a part of none":         {read, []string{`{"part":{"id":7,"bytes":1}}` + "\nx"}},
		"a part unasked":         {read, []string{`{"state":{"id":1,"size":9}}`, `{"part":{"id":1,"bytes":1}}` + "\nx"}},
		"twice that it began":    {read, []string{summed, summed}},
		"twice that it ended":    {read, []string{`{"state":{"id":1,"ended":true}}`, `{"state":{"id":1,"ended":true}}`}},
		"more written than sent": {write, []string{`{"state":{"id":1}}`, `{"state":{"id":1,"next":5}}`}},
		"less than nothing":      {write, []string{`{"state":{"id":1,"size":-5}}`}},
		"a bad checksum":         {read, []string{`{"state":{"id":1,"sha256":"x"}}`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{})
			m := newServing(t, n, o)
			opened := make(chan struct{})
			go func() {
				defer close(opened)
				if one, err := m.session.Transfer(t.Context(), c.open); err == nil {
					one.Close()
				}
			}()
			synctest.Wait()
			for _, said := range c.said {
				_ = m.write(said)
				synctest.Wait()
			}
			if o.hub.RunnerByKey(m.session.KeyHash()) != nil {
				t.Errorf("%s: it is still connected", name)
				m.disconnect()
			}
			<-opened
		})
	}
}

// Summing a large file takes long, but not for ever.
func TestAFileMayTakeLongToBeSummed(t *testing.T) {
	for takes, begins := range map[time.Duration]bool{30 * time.Minute: true, 2 * time.Hour: false} {
		synctest.Test(t, func(t *testing.T) {
			n, o := bubble(t, dispatch.Limits{})
			m := newServing(t, n, o)
			keepPinging(t, m.peer)
			opened := make(chan error, 1)
			go func() {
				one, err := m.session.Transfer(t.Context(), wire.Transfer{Kind: wire.TransferRead, Path: "/f"})
				if err == nil {
					one.Close()
				}
				opened <- err
			}()
			time.Sleep(takes)
			_ = m.write(`{"state":{"id":1,"size":9,"sha256":"` + strings.Repeat("0", 64) + `"}}`)
			if err := <-opened; (err == nil) != begins {
				t.Errorf("%s: %v", takes, err)
			}
			m.disconnect()
		})
	}
}
