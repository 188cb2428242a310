package kernel

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Workers are threads that wait for what they will do: answer for a gate, or trace. They are there before the command starts: it may
// take all processes that there may be, and Go ends a program that needs another thread and doesn't get it. Closing the channel ends those
// that nobody needed.
type Workers chan func()

// MaxWorkers is how many processes can be in their execve at a time; others wait. One that waits for a slow disk
// doesn't hold up the others.
const MaxWorkers = 4

// StartWorkers starts MaxWorkers of them, with threads in reserve for what else this process does while a command runs.
func StartWorkers() Workers {
	w := make(Workers)
	var there sync.WaitGroup
	for range MaxWorkers {
		there.Add(1)
		go OnThreadOfItsOwn(func() {
			there.Done()
			if work, ok := <-w; ok {
				work()
			}
		})
	}
	there.Wait()
	ReserveThreads(spareThreads)
	return w
}

// spareThreads is how many threads the runtime has in reserve, for what it does while a command runs.
const spareThreads = 8

// ReserveThreads makes the runtime start as many threads of n as are missing. It keeps them until one becomes a worker.
func ReserveThreads(n int) {
	var there, done sync.WaitGroup
	there.Add(n)
	release := make(chan struct{})
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	done.Wait()
}

// ReserveStart has the threads ready that the start of a command takes, so that it needs none that it might not get.
func ReserveStart() {
	const starting = 2 // enters the domain, and holds the first thread meanwhile
	ReserveThreads(MaxWorkers + spareThreads + starting)
}

// OnThreadOfItsOwn calls f on a thread that ends afterwards, which the first thread wouldn't. A tracer is a thread, and
// must have no children but those that it traces: the first thread is the parent of orphans.
func OnThreadOfItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// While this goroutine holds the first thread, another goroutine gets another thread.
			OnThreadOfItsOwn(f)
			runtime.UnlockOSThread()
			return
		}
		f() // never unlocked: the thread ends with this goroutine
	}()
	<-done
}
