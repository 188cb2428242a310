package audit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// disk is a sink that is full at times.
type disk struct {
	mu      sync.Mutex
	isFull  bool
	records []string
}

func (d *disk) Write(r Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isFull {
		return errors.New("no space left on device")
	}
	d.records = append(d.records, r.ID)
	return nil
}

func (d *disk) setFull(is bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isFull = is
}

// While the disk is full, records wait. Those that there is no room for are counted, and what waited is written in the end.
func TestAFullDiskIsCountedAndGotOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{isFull: true}
		const room = 3
		q := newQueue(d, logr.Discard(), room)
		lost := 0
		q.lose = func() { lost++ }
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = q.Start(ctx) })
		q.Add(record(0))
		synctest.Wait() // it is being written
		for i := range room + 2 {
			q.Add(record(i + 1))
		}
		if lost != 2 {
			t.Errorf("%d records are counted as lost, want 2", lost)
		}
		d.setFull(false)
		time.Sleep(retryPause)
		synctest.Wait()
		q.Add(record(9))
		cancel()
		running.Wait()
		if want := []string{"call/0", "call/1", "call/2", "call/3", "call/9"}; !slices.Equal(d.records, want) {
			t.Errorf("got %q, want %q", d.records, want)
		}
	})
}

func TestAnOperatorThatStopsDoesNotWaitForAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(&disk{isFull: true}, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		q.Add(record(1))
		q.Add(record(2))
		var running sync.WaitGroup
		running.Go(func() { _ = q.Start(ctx) })
		synctest.Wait()
		cancel()
		running.Wait()
	})
}
