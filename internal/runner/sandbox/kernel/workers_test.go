package kernel

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Workers take threads with them when they end: the reserve must be there for the commands after the first, too.
func TestEachCommandHasThreadsInReserve(t *testing.T) {
	for range 4 {
		OnThreadOfItsOwn(func() {}) // as the start of a stage
		ReserveWorkers()
		time.Sleep(20 * time.Millisecond) // The runtime starts threads late that it has asked for.
		before := threads(t)
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		const blocked = spareThreads / 2 // The runtime needs some for itself.
		for range blocked {
			go func() {
				_, _ = unix.Read(pipe[0], make([]byte, 1)) // blocks its thread
				ended <- struct{}{}
			}()
		}
		time.Sleep(50 * time.Millisecond)
		after := threads(t)
		unix.Close(pipe[1])
		for range blocked {
			<-ended
		}
		unix.Close(pipe[0])
		if after > before {
			t.Fatalf("%d threads became %d", before, after)
		}
	}
}

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A thread that ends and one that starts cost more than most commands have a worker do.
func TestWorkersComeBack(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		ended := make(chan int)
		for range MaxWorkers {
			OnWorker(func() { ended <- unix.Gettid() })
		}
		for range MaxWorkers {
			seen[<-ended] = true
		}
	}
	// Some may be on their way back when the next are taken.
	if len(seen) > 2*MaxWorkers {
		t.Errorf("%d threads took turns", len(seen))
	}
	if seen[unix.Getpid()] {
		t.Error("a worker is the first thread, which is the parent of orphans")
	}
}
