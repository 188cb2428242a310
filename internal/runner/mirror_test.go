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
