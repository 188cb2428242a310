package dispatch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"testing"

	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/wire"
)

func TestTransfersAreBounded(t *testing.T) {
	w := newFileWorld(t)
	var open []*dispatch.Transfer
	for range wire.MaxTransfers {
		up, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferWrite, "file"))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, up)
	}
	if _, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferWrite, "file")); !errors.Is(err, dispatch.ErrManyTransfers) {
		t.Errorf("one more: %v", err)
	}
	for _, up := range open {
		up.Close()
		_, _ = up.Finish(t.Context())
	}
	if _, err := w.put("file", []byte("x")); err != nil {
		t.Error(err)
	}
}

// A hundred MiB take no more memory than some parts, at either end: both are in this process.
func TestMemoryIsFlatWhateverTheSize(t *testing.T) {
	w := newFileWorld(t)
	const size = 100 << 20
	part := random(wire.MaxPart)
	var most uint64
	look := func(n int) {
		if n%64 != 0 {
			return
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	}
	look(0)
	before := most
	up, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferWrite, "large"))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	for n := range size / wire.MaxPart {
		hash.Write(part)
		if err := up.Write(t.Context(), part, n == size/wire.MaxPart-1); err != nil {
			t.Fatal(err)
		}
		look(n)
	}
	state, err := up.Finish(t.Context())
	if want := hex.EncodeToString(hash.Sum(nil)); err != nil || state.SHA256 != want {
		t.Fatalf("%+v, %v; want %s", state, err, want)
	}
	down, err := w.session.Transfer(t.Context(), w.transfer(wire.TransferRead, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer down.Close()
	again, n := sha256.New(), 0
	err = down.Read(t.Context(), 0, size, func(p []byte) error {
		again.Write(p)
		n++
		look(n)
		return nil
	})
	if err != nil || !bytes.Equal(again.Sum(nil), hash.Sum(nil)) {
		t.Error("what comes back is something else", err)
	}
	if over := most - before; over > 8<<20 {
		t.Errorf("it takes %d bytes of memory", over)
	}
}
