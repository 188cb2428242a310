package runner

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slowWriter takes each chunk after a delay.
type slowWriter struct {
	delay time.Duration
	bytes int64
}

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(w.delay)
	w.bytes += int64(len(p))
	return len(p), nil
}

// sendChunks passes on chunks and says how long the process waited for them.
func sendChunks(m *mirror, chunks int) time.Duration {
	began := time.Now()
	for range chunks {
		m.send(m.buffer())
	}
	return time.Since(began)
}

func TestASlowMirrorHoldsUpTheProcessWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{delay: time.Second}
		m := newMirror(w)
		const chunks = 1024
		// None of the waits is as long as the limit, but all together are.
		if took := sendChunks(m, chunks); took > stallLimit {
			t.Errorf("%d chunks took %s", chunks, took)
		}
		m.finish(time.Hour)
		if most := int64(chunks * chunkSize); w.bytes == 0 || w.bytes >= most {
			t.Errorf("the writer got %d bytes of %d", w.bytes, most)
		}
	})
}

func TestAMirrorThatIsFastEnoughMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It takes 16 MiB a second.
		w := &slowWriter{delay: time.Second / 256}
		m := newMirror(w)
		const chunks = 4096
		if took, most := sendChunks(m, chunks), 17*time.Second; took > most {
			t.Errorf("%d chunks took %s", chunks, took)
		}
		m.finish(time.Hour)
		if want := int64(chunks * chunkSize); w.bytes != want {
			t.Errorf("the writer got %d bytes of %d", w.bytes, want)
		}
	})
}

// haltingWriter takes so many chunks, and then one in each halt.
type haltingWriter struct {
	chunks int
	halt   time.Duration
}

func (w *haltingWriter) Write(p []byte) (int, error) {
	if w.chunks--; w.chunks < 0 {
		time.Sleep(w.halt)
	}
	return len(p), nil
}

// What a writer took for a long time is no reason to wait long when it hangs: the end of the command would wait too.
func TestAMirrorThatHangsAfterMuchOutputIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fast = 100 * mirrorRate / chunkSize
		m := newMirror(&haltingWriter{chunks: fast, halt: time.Hour})
		for range fast {
			m.send(m.buffer())
			synctest.Wait()
		}
		if took := sendChunks(m, 1000); took != stallLimit {
			t.Errorf("the process waited %s", took)
		}
		// It goes on, and hangs again.
		time.Sleep(2 * time.Hour)
		if took := sendChunks(m, 1000); took != stallLimit {
			t.Errorf("the process waited %s the second time", took)
		}
		m.finish(time.Second)
		time.Sleep(100 * time.Hour)
	})
}

func TestAMirrorThatHangsGetsOutputAgainWhenItGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		m := newMirror(w)
		if took := sendChunks(m, 100); took != stallLimit {
			t.Errorf("the process waited %s", took)
		}
		got := make(chan int64, 1)
		go func() {
			n, _ := io.Copy(io.Discard, r)
			got <- n
		}()
		synctest.Wait()
		if took := sendChunks(m, 1); took != 0 {
			t.Errorf("the process waited %s more", took)
		}
		m.finish(time.Hour)
		w.Close()
		if n, want := <-got, int64((mirrorChunks+2)*chunkSize); n != want {
			t.Errorf("the writer got %d bytes, want %d", n, want)
		}
	})
}

// A log that hangs for hours must not keep what each call since has written, and a goroutine of each.
func TestALogThatHangsKeepsNothingOfWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := NewLog(&slowWriter{delay: time.Hour})
		left := 0
		var mirrors []*mirror
		for range 100 {
			m := newMirror(log)
			sendChunks(m, 3)
			m.finish(time.Second)
			mirrors = append(mirrors, m)
		}
		synctest.Wait()
		for _, m := range mirrors {
			select {
			case <-m.done:
			default:
				left++
			}
			if len(m.queue) > 0 {
				t.Errorf("%d chunks are left", len(m.queue))
			}
		}
		if left != 1 {
			t.Errorf("%d goroutines are left, want the one that writes", left)
		}
		time.Sleep(2 * time.Hour)
		m := newMirror(log)
		sendChunks(m, 3)
		m.finish(10 * time.Hour)
		if got, want := log.w.(*slowWriter).bytes, int64(4*chunkSize); got != want {
			t.Errorf("the log got %d bytes, want %d", got, want)
		}
	})
}
