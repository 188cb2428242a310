package store

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"toolcall.dev/operator/internal/output"
)

// folderStore is a store in a folder, which the test can take away and give back.
func folderStore(t *testing.T) (store *Store, away, back func()) {
	t.Helper()
	folder := t.TempDir()
	calls, hidden := filepath.Join(folder, "calls"), filepath.Join(folder, "hidden")
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	location, err := ParseLocation("file://" + folder)
	check(err)
	store, err = Open(t.Context(), location, nil)
	check(err)
	check(os.Mkdir(calls, 0o700))
	return store, func() {
			check(os.Rename(calls, hidden))
			// Nothing can be made in what is no folder.
			check(os.WriteFile(calls, nil, 0o600))
		}, func() {
			check(os.Remove(calls))
			check(os.Rename(hidden, calls))
		}
}

func TestTheEndOfAStreamIsTriedForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away, _ := folderStore(t)
		defer store.Close()
		away()
		begin, source := time.Now(), ended([]byte("some output"))
		w := keep(t, store, newKey(), source, 100)
		synctest.Wait()
		if s := w.Status(); s.State != Storing || s.Err == nil {
			t.Errorf("at first it is %+v", s)
		}
		<-w.Done()
		if s := w.Status(); s.State != Lost || s.Err == nil || s.Kept != 0 || errors.Is(s.Err, context.DeadlineExceeded) {
			t.Errorf("in the end it is %+v", s)
		}
		if took := time.Since(begin); took != patience {
			t.Errorf("it is tried for %v", took)
		}
	})
}

func TestWhileTheProcessRunsTheStoreMayBeAwayForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away, back := folderStore(t)
		defer store.Close()
		data, key, source := noise(50, 2*partBytes+1), newKey(), newStream()
		away()
		w := keep(t, store, key, source, 8<<20)
		source.write(data)
		time.Sleep(time.Hour)
		if s := w.Status(); s.State != Growing || s.Err == nil {
			t.Errorf("while the store is away it is %+v", s)
		}
		back()
		time.Sleep(maxDelay)
		synctest.Wait()
		if s := w.Status(); s != (Status{State: Growing}) || len(objects(t, store, key)) != 2 {
			t.Errorf("when the store is back it is %+v, with %q", s, objects(t, store, key))
		}
		// The time for the end begins at the end.
		away()
		source.end()
		time.Sleep(patience - maxDelay)
		back()
		stores(t, w, source, Status{State: Complete, Kept: int64(len(data))})
		mustRead(t, store, key, data)
	})
}

func TestOfALostPodTheBeginningIsKept(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(source *stream)
		// after is for how long the source is waited for.
		after time.Duration
		// hasSum says that the source has said the checksum before.
		hasSum bool
	}{
		"the source says so":         {func(s *stream) { s.fail(output.ErrNotFound) }, 0, false},
		"the source is away":         {func(s *stream) { s.fail(errors.New("no connection")) }, patience, false},
		"the source ends and leaves": {func(s *stream) { s.change(func() { s.ended, s.err = true, output.ErrNotFound }) }, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, _, _ := folderStore(t)
				defer store.Close()
				data, key, source := noise(51, partBytes+100), newKey(), newStream()
				w := keep(t, store, key, source, 8<<20)
				source.write(data)
				synctest.Wait()
				begin := time.Now()
				test.lose(source)
				<-w.Done()
				if took := time.Since(begin); took < test.after || took > test.after+maxDelay || (test.after == 0 && took > 0) {
					t.Errorf("it takes %v", took)
				}
				if s := w.Status(); s.State != Lost || s.Err == nil || s.Kept != partBytes {
					t.Errorf("it is %+v", s)
				}
				r, err := store.Open(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if info := r.Info(); info.Bytes != int64(len(data)) || info.Missing != (output.Range{Start: partBytes, End: int64(len(data))}) || (info.SHA256 != "") != test.hasSum {
					t.Errorf("the store says %+v", info)
				}
				got, err := readRange(t.Context(), r, 0, len(data), partBytes)
				gap := &output.MissingError{}
				if string(got) != string(data[:partBytes]) || !errors.As(err, &gap) {
					t.Errorf("%d bytes are there, then %v", len(got), err)
				}
				if _, err := r.ReadAt(t.Context(), make([]byte, 1), gap.Next); err != io.EOF {
					t.Errorf("behind what is missing is %v", err)
				}
			})
		})
	}
}

func TestASourceThatComesBackIsReadOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, _ := folderStore(t)
		defer store.Close()
		data, key, source := noise(52, 3*partBytes), newKey(), newStream()
		w := keep(t, store, key, source, 8<<20)
		for n := range 3 {
			source.fail(errors.New("no connection"))
			time.Sleep(patience - maxDelay)
			if s := w.Status(); s.State != Growing || s.Err == nil {
				t.Errorf("without its source it is %+v", s)
			}
			source.fail(nil)
			source.write(data[n*partBytes:][:partBytes])
			time.Sleep(2 * maxDelay)
		}
		source.end()
		stores(t, waited(w), source, Status{State: Complete, Kept: int64(len(data))})
		mustRead(t, store, key, data)
	})
}

// waited returns a writer that has done its work.
func waited(w *Writer) *Writer {
	<-w.Done()
	return w
}

// A source that lies doesn't keep the operator busy.
func TestASourceThatSaysNonsenseIsLeft(t *testing.T) {
	for name, source := range map[string]output.Reader{
		"negative bytes":        &liar{info: output.Info{Bytes: -1}},
		"a gap behind the end":  &liar{info: output.Info{Bytes: 5, Missing: output.Range{Start: 1, End: 9}}},
		"a gap before zero":     &liar{info: output.Info{Bytes: 5, Missing: output.Range{Start: -9, End: 2}}},
		"a hash that's none":    &liar{info: output.Info{Bytes: 5, Complete: true, SHA256: "yes"}},
		"it doesn't wait":       &liar{info: output.Info{Bytes: 5}},
		"it hands over nothing": &liar{info: output.Info{Bytes: 5 << 20}},
		"it hands over more":    &liar{info: output.Info{Bytes: 5 << 20}, more: 1},
		"it hands over less":    &liar{info: output.Info{Bytes: 5 << 20}, more: -1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, _, _ := folderStore(t)
				defer store.Close()
				w, err := store.Keep(t.Context(), newKey(), source, 8<<20)
				if err != nil {
					t.Fatal(err)
				}
				<-w.Done()
				if s := w.Status(); s.State != Lost || s.Err == nil || s.Kept != 0 {
					t.Errorf("it is %+v", s)
				}
				if asked := source.(*liar).asked; asked > 1000 {
					t.Errorf("it was asked %d times", asked)
				}
			})
		})
	}
}

// liar says what it was told to say.
type liar struct {
	info  output.Info
	more  int
	asked int
}

func (l *liar) Info() output.Info { l.asked++; return l.info }

func (l *liar) ReadAt(_ context.Context, p []byte, _ int64) (int, error) {
	if l.more == 0 {
		return 0, nil
	}
	return len(p) + l.more, nil
}

func (l *liar) Wait(context.Context, int64) error { return nil }
func (l *liar) Close()                            {}

func TestAStreamWhoseSourceCameBackIsStoredWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, _ := folderStore(t)
		defer store.Close()
		data, key, source := noise(52, 2*partBytes+100), newKey(), newStream()
		w := keep(t, store, key, source, 8<<20)
		source.write(data[:partBytes+1])
		synctest.Wait()
		source.fail(output.ErrNotFound)
		if <-w.Done(); w.Status().State != Lost {
			t.Fatalf("it is %+v", w.Status())
		}
		// One that has less doesn't take away what is there.
		gone := newStream()
		gone.fail(output.ErrNotFound)
		w = keep(t, store, key, gone, 8<<20)
		if <-w.Done(); w.Status().State != Lost || w.Status().Kept != partBytes {
			t.Errorf("without a source it is %+v", w.Status())
		}
		again := ended(data)
		stores(t, keep(t, store, key, again, 8<<20), again, Status{State: Complete, Kept: int64(len(data))})
		mustRead(t, store, key, data)
	})
}

// An operator that begins again has neither what the one before stored in its memory, nor a pod to read it from.
func TestAStreamThatIsStoredStaysWithoutItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, away, back := folderStore(t)
		defer store.Close()
		data, key := noise(53, partBytes+100), newKey()
		source := ended(data)
		stores(t, waited(keep(t, store, key, source, 8<<20)), source, Status{State: Complete, Kept: int64(len(data))})
		for _, wait := range []time.Duration{0, patience - maxDelay} {
			gone := newStream()
			gone.fail(output.ErrNotFound)
			if wait > 0 {
				away()
			}
			w := keep(t, store, key, gone, 8<<20)
			time.Sleep(wait)
			if wait > 0 {
				back()
			}
			stores(t, waited(w), gone, Status{State: Complete, Kept: int64(len(data))})
			mustRead(t, store, key, data)
		}
	})
}
