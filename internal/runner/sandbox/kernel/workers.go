package kernel

import (
	"math"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// MaxWorkers is how many processes can be in their execve at a time; others wait. One that waits for a slow disk
// doesn't hold up the others.
const MaxWorkers = 4

// worker is a thread that does one work after the other, for what holds a command: to answer for a gate, or to trace. It isn't
// restricted, started no process, and isn't the first one.
type worker chan func()

// idle are the workers that have nothing to do. They are kept: a thread that ends and one that starts cost more than what most of them do.
var idle struct {
	sync.Mutex
	workers []worker
}

// ReserveWorkers has as many workers ready as a command may need, and threads in reserve for what else this process does while a command
// starts and runs. It is called before the start: the command may take all processes that there may be, and Go ends a program that needs
// another thread and doesn't get it.
func ReserveWorkers() {
	var ready []worker
	for range MaxWorkers {
		ready = append(ready, takeWorker())
	}
	giveBack(ready...)
	ReserveThreads(spareThreads)
}

// OnWorker has a worker do something.
func OnWorker(work func()) {
	// It may be on its way back from what it did before.
	takeWorker() <- work
}

func takeWorker() worker {
	idle.Lock()
	defer idle.Unlock()
	if last := len(idle.workers) - 1; last >= 0 {
		w := idle.workers[last]
		idle.workers = idle.workers[:last]
		return w
	}
	return startWorker()
}

func startWorker() worker {
	w, there := make(worker), make(chan struct{})
	go w.serve(there)
	<-there
	return w
}

// serve does what the worker is sent. It closes a channel when its thread is there.
func (w worker) serve(there chan struct{}) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// While this goroutine holds the first thread, another goroutine gets another thread.
		go w.serve(there)
		<-there
		return
	}
	close(there)
	for work := range w {
		work()
		giveBack(w)
	}
}

func giveBack(workers ...worker) {
	idle.Lock()
	defer idle.Unlock()
	idle.workers = append(idle.workers, workers...)
}

// spareThreads is how many threads the runtime has in reserve. Two enter the domain of a command, and hold the first thread meanwhile.
const spareThreads = 10

// reserve is what ReserveThreads made sure of.
var reserve struct {
	sync.Mutex
	// spare is how many threads were idle at the same time, and least how many this process must have for that.
	spare, least int
}

// lostAhead is how many threads may end until the reserve is made anew: each start of a command that is restricted takes one.
const lostAhead = 8

// ReserveThreads makes the runtime start as many threads of n as are missing. It keeps all but those that end with their goroutine
// (OnThreadOfItsOwn): only when too many have ended since is there anything to do.
func ReserveThreads(n int) {
	reserve.Lock()
	defer reserve.Unlock()
	if n <= reserve.spare && threadCount() >= reserve.least {
		return
	}
	reserve.spare = max(n, reserve.spare)
	startThreads(reserve.spare + lostAhead)
	reserve.least = threadCount() - lostAhead
}

// threadCount is how many threads this process has, and 0 if nobody knows. Each is a link of a directory.
func threadCount() int {
	var st unix.Stat_t
	if unix.Stat("/proc/self/task", &st) != nil || st.Nlink < 3 || st.Nlink > math.MaxInt32 {
		return 0
	}
	return int(st.Nlink) - 2
}

// startThreads has n goroutines hold a thread at the same time.
func startThreads(n int) {
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
