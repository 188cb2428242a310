package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

func TestAStreamIsReadAsItWasWritten(t *testing.T) {
	server := startServer(t)
	for _, url := range []string{server.url(), server.url() + "&prefix=some/cluster", "file://" + t.TempDir() + "/output"} {
		store := open(t, url)
		for _, n := range []int{0, 1, partBytes - 1, partBytes, partBytes + 1, 3*partBytes + partBytes/2} {
			data, key := noise(uint64(n), n), newKey()
			source := ended(data)
			stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(n)})
			mustRead(t, store, key, data)
			key.Stream = output.Stderr
			if _, err := store.Open(t.Context(), key); !errors.Is(err, output.ErrNotFound) {
				t.Errorf("the stream that nobody stored is %v", err)
			}
		}
	}
}

func TestAnyRangeCanBeRead(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key := noise(1, 2*partBytes+12345), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	r, err := store.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(t.Context(), 1<<40); err != nil {
		t.Errorf("waiting for more of a stored stream: %v", err)
	}
	for _, offset := range []int{0, 1, partBytes - 1, partBytes, partBytes + 1, len(data) - 1} {
		for _, n := range []int{1, 2, 64 << 10, partBytes + 7} {
			n = min(n, len(data)-offset)
			got, err := readRange(t.Context(), r, int64(offset), n, 64<<10)
			if err != nil || !bytes.Equal(got, data[offset:offset+n]) {
				t.Errorf("%d bytes from %d: %v", n, offset, err)
			}
		}
	}
	for _, offset := range []int64{int64(len(data)), int64(len(data)) + 1, 1 << 60} {
		if n, err := r.ReadAt(t.Context(), make([]byte, 1), offset); n != 0 || err != io.EOF {
			t.Errorf("from %d, at or behind the end, there are %d bytes, %v", offset, n, err)
		}
	}
	if _, err := r.ReadAt(t.Context(), make([]byte, 1), -1); err == nil {
		t.Error("a negative offset is no error")
	}
	if _, err := r.ReadAt(t.Context(), nil, 0); err == nil {
		t.Error("to ask for no bytes is no error")
	}
}

func TestPartsGoUpWhileTheProcessRuns(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key, source := noise(2, 3*partBytes+100), newKey(), newStream()
	w := keep(t, store, key, source, 8<<20)
	source.write(data[:2*partBytes+100])
	eventually(t, "two parts are stored", func() bool { return len(objects(t, store, key)) == 2 })
	if _, err := store.Open(t.Context(), key); !errors.Is(err, output.ErrNotFound) {
		t.Errorf("the stream that grows is %v in the store", err)
	}
	if status := w.Status(); status != (Status{State: Growing}) {
		t.Errorf("the stream that grows is %+v", status)
	}
	again, err := store.Keep(t.Context(), key, newStream(), 8<<20)
	if err != nil || again != w {
		t.Errorf("the stream has two writers, %v", err)
	}
	source.write(data[2*partBytes+100:])
	source.end()
	stores(t, w, source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

func TestOfALongStreamTheFirstAndTheLastPartAreKept(t *testing.T) {
	store := open(t, startServer(t).url())
	for _, test := range []struct{ limit, bytes, step int }{
		{4 << 20, 10 << 20, 700_000},
		{4 << 20, 4<<20 + 1, 4<<20 + 1},
		{4 << 20, 5 << 20, 5 << 20},
		{3<<20 + 77, 7<<20 + 3, 1 << 20},
		{1<<20 + 1, 1<<20 + 2, 1000_000},
		{3, 1000, 10},
		{1, 2, 1},
	} {
		data, key, source := noise(3, test.bytes), newKey(), newStream()
		source.limit = int64(test.limit)
		w := keep(t, store, key, source, int64(test.limit))
		for chunk := range slices.Chunk(data, test.step) {
			source.write(chunk)
		}
		source.end()
		stores(t, w, source, Status{State: Shortened, Kept: int64(test.limit)})
		r, err := store.Open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		first, last := test.limit/2, test.limit-test.limit/2
		behind := int64(test.bytes - last)
		if info := r.Info(); info.Missing != (output.Range{Start: int64(first), End: behind}) || info.SHA256 != hashOf(data) || info.Bytes != int64(test.bytes) {
			t.Errorf("%+v: the store says %+v", test, info)
		}
		head, err := readRange(t.Context(), r, 0, test.bytes, 1<<20)
		gap := &output.MissingError{}
		if !errors.As(err, &gap) || gap.Next != behind || !bytes.Equal(head, data[:first]) {
			t.Errorf("%+v: the beginning has %d bytes, then %v", test, len(head), err)
		}
		if _, err := r.ReadAt(t.Context(), make([]byte, 1), behind-1); !errors.As(err, &gap) {
			t.Errorf("%+v: before the last part is %v", test, err)
		}
		tail, err := readRange(t.Context(), r, behind, test.bytes, 1<<20)
		if err != io.EOF || !bytes.Equal(tail, data[behind:]) {
			t.Errorf("%+v: the end has %d bytes, then %v", test, len(tail), err)
		}
		want := []string{indexName}
		for _, p := range r.(*reader).index.Parts {
			want = append(want, "stdout/"+p.name())
		}
		want[0] = "stdout/" + indexName
		if got := objects(t, store, key); !slices.Equal(got, want) {
			t.Errorf("%+v: the store has %q, the stream consists of %q", test, got, want)
		}
	}
}

// What was the end while the process ran is the middle when it has gone on.
func TestPartsThatTurnOutToBeInTheMiddleAreRemoved(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key, source := noise(10, 10<<20), newKey(), newStream()
	source.limit = 4 << 20
	w := keep(t, store, key, source, 4<<20)
	source.write(data[:4<<20])
	eventually(t, "four parts are stored", func() bool { return len(objects(t, store, key)) == 4 })
	source.write(data[4<<20:])
	source.end()
	stores(t, w, source, Status{State: Shortened, Kept: 4 << 20})
	want := []string{"stdout/" + indexName}
	for _, offset := range []int64{0, 1 << 20, 8 << 20, 9 << 20} {
		want = append(want, "stdout/"+part{Offset: offset, Size: partBytes}.name())
	}
	if got := objects(t, store, key); !slices.Equal(got, want) {
		t.Errorf("the store has %q, the stream consists of %q", got, want)
	}
}

// A pod whose disk is full has the first and the last bytes only, which the status has too. What was stored before that stays, and the
// rest isn't called whole.
func TestWhatAPodLosesIsLost(t *testing.T) {
	store := open(t, startServer(t).url())
	for name, c := range map[string]struct {
		size, stored int
		limit        int64
		lost, lack   span
		want         Status
	}{
		"after two parts":        {5 << 20, 2, 8 << 20, span{1 << 10, 5<<20 - 1<<10}, span{2 << 20, 5 << 20}, Status{State: Lost, Kept: 2 << 20}},
		"what is stored already": {3 << 20, 2, 8 << 20, span{1 << 10, 2 << 20}, span{}, Status{State: Complete, Kept: 3 << 20}},
		"what isn't to be kept":  {9 << 20, 2, 4 << 20, span{2 << 20, 7 << 20}, span{2 << 20, 7 << 20}, Status{State: Shortened, Kept: 4 << 20}},
		"more than isn't to be kept": {
			9 << 20, 2, 4 << 20, span{1 << 10, 9<<20 - 1<<10}, span{2 << 20, 9 << 20}, Status{State: Lost, Kept: 2 << 20},
		},
		"more than is to be kept of the start is there": {
			9 << 20, 4, 4 << 20, span{1 << 10, 9<<20 - 1<<10}, span{4 << 20, 9 << 20}, Status{State: Lost, Kept: 4 << 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, key, source := noise(11, c.size), newKey(), newStream()
			w := keep(t, store, key, source, c.limit)
			source.write(data[:c.stored<<20])
			eventually(t, "parts are stored", func() bool { return len(objects(t, store, key)) == c.stored })
			source.change(func() { source.data, source.lost, source.ended = data, c.lost, true })
			if got := awaitState(t, w, source); got.State != c.want.State || got.Kept != c.want.Kept || (got.State == Lost) != errors.Is(got.Err, errPodLost) {
				t.Fatalf("the writer ends as %+v", got)
			}
			// Whoever stores it again has no more, and takes nothing away.
			again := newStream()
			again.change(func() { again.data, again.lost, again.ended = data, c.lost, true })
			if got := awaitState(t, keep(t, store, key, again, c.limit), again); got.State != c.want.State || got.Kept != c.want.Kept {
				t.Errorf("the next writer ends as %+v", got)
			}
			reader, err := store.Open(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			info := reader.Info()
			if span(info.Missing) != c.lack || info.SHA256 != hashOf(data) {
				t.Errorf("it lacks %v, want %v, and has the sha256 %q", info.Missing, c.lack, info.SHA256)
			}
			start := make([]byte, c.lack.Start)
			for at := 0; at < len(start); {
				n, err := reader.ReadAt(t.Context(), start[at:], int64(at))
				if err != nil {
					t.Fatal(err)
				}
				at += n
			}
			if !bytes.Equal(start, data[:len(start)]) {
				t.Error("the start isn't what the process wrote")
			}
		})
	}
}

// What the operator may keep is the operator's to say, whatever a pod hands over.
func TestASourceThatHasMoreThanTheLimitIsShortened(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key := noise(4, 5<<20), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 2<<20), source, Status{State: Shortened, Kept: 2 << 20})
	if kept := len(objects(t, store, key)); kept != 3 {
		t.Errorf("the store has %d objects for two parts", kept)
	}
}

func TestAStreamThatIsStoredIsNotStoredAgain(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key := noise(5, partBytes+5), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	again := ended(data)
	again.onRead = func(context.Context, int64) error { return errors.New("it is read again") }
	stores(t, keep(t, store, key, again, 8<<20), again, Status{State: Complete, Kept: int64(len(data))})
}

// A new leader begins while the old one doesn't know yet that it is none.
func TestTwoOperatorsStoreOneStream(t *testing.T) {
	server := startServer(t)
	old, young := open(t, server.url()), open(t, server.url())
	data, key := noise(6, 6<<20+321), newKey()
	first, second := newStream(), newStream()
	first.limit, second.limit = 4<<20, 4<<20
	w1 := keep(t, old, key, first, 4<<20)
	first.write(data[:3<<20])
	eventually(t, "the first operator has stored parts", func() bool { return len(objects(t, old, key)) >= 3 })
	w2 := keep(t, young, key, second, 4<<20)
	second.write(data)
	second.end()
	stores(t, w2, second, Status{State: Shortened, Kept: 4 << 20})
	first.write(data[3<<20:])
	first.end()
	stores(t, w1, first, Status{State: Shortened, Kept: 4 << 20})
	r, err := old.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Info().Missing
	head, _ := readRange(t.Context(), r, 0, int(m.Start), 1<<20)
	tail, err := readRange(t.Context(), r, m.End, len(data)-int(m.End), 1<<20)
	if err != nil || !bytes.Equal(head, data[:m.Start]) || !bytes.Equal(tail, data[m.End:]) {
		t.Errorf("the stream isn't what was written: %v", err)
	}
}

func TestAnOperatorGoesOnWithTheStreamsOfTheLast(t *testing.T) {
	server := startServer(t)
	data, key := noise(7, 3*partBytes), newKey()
	old, source := open(t, server.url()), newStream()
	source.write(data[:2*partBytes])
	w := keep(t, old, key, source, 8<<20)
	eventually(t, "two parts are stored", func() bool { return len(objects(t, old, key)) == 2 })
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if status := awaitState(t, w, source); status.State != Growing || !errors.Is(status.Err, errClosed) {
		t.Errorf("the writer that was stopped is %+v", status)
	}
	if _, err := old.Keep(t.Context(), key, newStream(), 1); !errors.Is(err, errClosed) {
		t.Errorf("a closed store takes streams: %v", err)
	}
	young := open(t, server.url())
	source = ended(data)
	stores(t, keep(t, young, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, young, key, data)
}

func TestAWriterEndsWithItsContext(t *testing.T) {
	store := open(t, startServer(t).url())
	source := newStream()
	ctx, cancel := context.WithCancelCause(t.Context())
	w, err := store.Keep(ctx, newKey(), source, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the lease is gone")
	cancel(gone)
	if status := awaitState(t, w, source); status.State != Growing || !errors.Is(status.Err, gone) {
		t.Errorf("the writer that was stopped is %+v", status)
	}
}

func TestManyReadersCostOneDownload(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	data, key := noise(8, 4*partBytes), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	_, _, before := server.proxy.counts()
	var reading sync.WaitGroup
	for range 100 {
		r, err := store.Open(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		reading.Go(func() {
			if got, err := readRange(t.Context(), r, 0, len(data), 256<<10); err != nil || !bytes.Equal(got, data) {
				t.Errorf("a reader gets %d bytes, %v", len(got), err)
			}
		})
	}
	reading.Wait()
	// A hundred indexes have some kilobytes each with their headers.
	if _, _, after := server.proxy.counts(); after-before > int64(len(data))+1<<20 {
		t.Errorf("the store was asked for %d bytes, the stream has %d", after-before, len(data))
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	cache := newPartCache(2, 1)
	defer cache.close()
	fetched := map[string]int{}
	load := func(key string) {
		data, err := cache.load(t.Context(), key, func(context.Context) ([]byte, error) {
			fetched[key]++
			return []byte(key), nil
		})
		if err != nil || string(data) != key {
			t.Errorf("%s is %q, %v", key, data, err)
		}
	}
	for _, key := range []string{"a", "b", "a", "c", "a", "b"} {
		load(key)
	}
	if got := fmt.Sprint(fetched); got != "map[a:1 b:2 c:1]" || cache.parts.Len() != 2 {
		t.Errorf("fetched %s, %d are left", got, cache.parts.Len())
	}
}

func TestWhatCouldNotBeLoadedIsLoadedAgain(t *testing.T) {
	cache := newPartCache(2, 1)
	wrong := errors.New("not now")
	if _, err := cache.load(t.Context(), "a", func(context.Context) ([]byte, error) { return nil, wrong }); err != wrong {
		t.Errorf("the error is %v", err)
	}
	if data, err := cache.load(t.Context(), "a", func(context.Context) ([]byte, error) { return []byte("x"), nil }); err != nil || string(data) != "x" {
		t.Errorf("the second time it is %q, %v", data, err)
	}
	// Who waits may leave; the others get what was asked for.
	begun, ctx := make(chan struct{}), t.Context()
	left, leave := context.WithCancel(ctx)
	go func() { <-begun; leave() }()
	if _, err := cache.load(left, "b", func(ctx context.Context) ([]byte, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}); err != context.Canceled {
		t.Errorf("whoever left gets %v", err)
	}
	cache.close()
	if _, err := cache.load(ctx, "c", nil); err != errClosed {
		t.Errorf("a closed cache says %v", err)
	}
}

func TestHostileNamesNameNothing(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url()+"&prefix=ours")
	data, key := noise(9, 10), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 100), source, Status{State: Complete, Kept: 10})
	for _, uid := range []string{
		"", ".", "..", "../" + string(key.UID), string(key.UID) + "/stdout", "/", "a/b", `a\b`, "a b", "a\x00", "-a", "%2e%2e", "ä", "a.b", "a*", "a\n",
		strings.Repeat("a", 65), "../../other", string(key.UID) + "/../" + string(key.UID),
	} {
		hostile := key
		hostile.UID = types.UID(uid)
		checkRefused(t, store, hostile)
		if err := store.Delete(t.Context(), hostile.UID); err == nil {
			t.Errorf("the UID %q can be deleted", uid)
		}
	}
	for _, stream := range []output.Stream{"", "stdin", "..", "../" + key.Stream, "stdout/", "Stdout"} {
		hostile := key
		hostile.Stream = stream
		checkRefused(t, store, hostile)
	}
	hostile := key
	hostile.Artifact = "report.txt"
	checkRefused(t, store, hostile)
	hostile.Stream, hostile.Artifact = "", strings.Repeat("a", maxArtifactPath+1)
	checkRefused(t, store, hostile)
	mustRead(t, store, key, data)
}

func checkRefused(t *testing.T, store *Store, key output.Key) {
	t.Helper()
	source := newStream()
	if _, err := store.Keep(t.Context(), key, source, 100); err == nil {
		t.Errorf("%q can be stored", key)
	}
	<-source.closed
	if _, err := store.Open(t.Context(), key); err == nil || errors.Is(err, output.ErrNotFound) {
		t.Errorf("%q can be asked for: %v", key, err)
	}
}

func TestALimitThatIsNoneIsRefused(t *testing.T) {
	store := open(t, "file://"+t.TempDir()+"/output")
	for _, limit := range []int64{-1, 0, MaxLimit + 1} {
		source := newStream()
		if _, err := store.Keep(t.Context(), newKey(), source, limit); err == nil {
			t.Errorf("the limit %d is taken", limit)
		}
		<-source.closed
	}
}

func TestArtifactsAreApartFromStreamsAndFromEachOther(t *testing.T) {
	store := open(t, "file://"+t.TempDir()+"/output")
	uid, kept := newKey().UID, map[output.Key][]byte{}
	for n, path := range []string{"a", "a/b", "../a", "/etc/passwd", "index.json", "stdout", "ä\x00\n%2f", strings.Repeat("a", maxArtifactPath)} {
		key := output.Key{Namespace: "ns", Name: "call", UID: uid, Artifact: path}
		kept[key] = noise(uint64(n), 100+n)
	}
	kept[output.Key{Namespace: "ns", Name: "call", UID: uid, Stream: output.Stdout}] = noise(99, 99)
	for key, data := range kept {
		source := ended(data)
		stores(t, keep(t, store, key, source, 1000), source, Status{State: Complete, Kept: int64(len(data))})
	}
	for key, data := range kept {
		mustRead(t, store, key, data)
	}
	if err := store.Delete(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	for key := range kept {
		if _, err := store.Open(t.Context(), key); !errors.Is(err, output.ErrNotFound) {
			t.Errorf("after the call %q is %v", key, err)
		}
	}
}
