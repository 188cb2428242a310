package toolcall_test

import (
	"toolcall.dev/operator/internal/testing/fixture"
)

func newLedger() *fixture.Ledger { return &fixture.Ledger{Starts: map[string][]fixture.Start{}} }
