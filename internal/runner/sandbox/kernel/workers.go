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

// Workers are threads for what holds one command: to answer for a gate, or to trace. They are there before the command starts: it may
// take all processes that there may be, and Go ends a program that needs another thread and doesn't get it. Close gives back those that
// nobody needed.
type Workers struct{ idle []worker }

// worker is a thread that does one work after the other. It isn't restricted, started no process, and isn't the first one.
type worker chan func()

// waiting are the workers that nobody has. They are kept: a thread that ends and one that starts cost more than what most of them do.
var waiting struct {
	sync.Mutex
	workers []worker
}

// StartWorkers returns MaxWorkers of them, with threads in reserve for what else this process does while a command runs.
func StartWorkers() *Workers {
	w := &Workers{}
	for range MaxWorkers {
		w.idle = append(w.idle, takeWorker())
	}
	ReserveThreads(spareThreads)
	return w
}

func takeWorker() worker {
	waiting.Lock()
	defer waiting.Unlock()
	if last := len(waiting.workers) - 1; last >= 0 {
		w := waiting.workers[last]
		waiting.workers = waiting.workers[:last]
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
	waiting.Lock()
	defer waiting.Unlock()
	waiting.workers = append(waiting.workers, workers...)
}

// Run has one of the workers do something. It reports false when none is left.
func (w *Workers) Run(work func()) bool {
	last := len(w.idle) - 1
	if last < 0 {
		return false
	}
	next := w.idle[last]
	w.idle = w.idle[:last]
	// It may be on its way back from what it did before.
	next <- work
	return true
}

// Close gives back the workers that are left.
func (w *Workers) Close() {
	giveBack(w.idle...)
	w.idle = nil
}

// spareThreads is how many threads the runtime has in reserve, for what it does while a command runs.
const spareThreads = 8

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

// ReserveStart has the threads ready that the start of a command takes, so that it needs none that it might not get.
func ReserveStart() {
	const starting = 2 // enters the domain, and holds the first thread meanwhile
	StartWorkers().Close()
	ReserveThreads(spareThreads + starting)
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
