package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toolcall.dev/operator/internal/output"
)

func TestTheStoreIsAwayAndComesBack(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	data, key, source := noise(20, 4*partBytes+9), newKey(), newStream()
	server.proxy.set(func() { server.proxy.away = true })
	w := keep(t, store, key, source, 8<<20)
	source.write(data[:2*partBytes])
	eventually(t, "the writer says that the store is away", func() bool { return w.Status().Err != nil })
	server.proxy.set(func() { server.proxy.away = false })
	eventually(t, "the writer goes on", func() bool { return w.Status().Err == nil && len(objects(t, store, key)) == 2 })
	// It is away again when the process ends.
	server.proxy.set(func() { server.proxy.away = true })
	source.write(data[2*partBytes:])
	source.end()
	eventually(t, "the rest is on its way", func() bool { s := w.Status(); return s.State == Storing && s.Err != nil })
	server.proxy.set(func() { server.proxy.away = false })
	stores(t, w, source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

func TestConnectionsAreCutInTheMiddle(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	server.proxy.set(func() { server.proxy.cuts, server.proxy.cutAfter = 12, 400_000 })
	data, key := noise(21, 5*partBytes+17), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

func TestTheServerIsKilledAndComesBack(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	data, key, source := noise(22, 4*partBytes), newKey(), newStream()
	w := keep(t, store, key, source, 8<<20)
	source.write(data[:2*partBytes])
	eventually(t, "two parts are stored", func() bool { return len(objects(t, store, key)) == 2 })
	server.kill()
	source.write(data[2*partBytes:])
	source.end()
	eventually(t, "the writer notices", func() bool { return w.Status().Err != nil })
	server.start()
	stores(t, w, source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

func TestALongOutputIsExactAcrossACrashOfTheServer(t *testing.T) {
	const n = 64 << 20
	server := startServer(t)
	store := open(t, server.url())
	key := newKey()
	var writers []*Writer
	var sources []*stream
	data := map[output.Stream][]byte{output.Stdout: noise(32, n), output.Stderr: noise(33, n)}
	for name, content := range data {
		key.Stream = name
		source := newStream()
		writers, sources = append(writers, keep(t, store, key, source, n)), append(sources, source)
		source.write(content[:n/2])
	}
	eventually(t, "many parts are stored", func() bool { return len(objects(t, store, key)) > 20 })
	server.kill()
	for i, w := range writers {
		source := sources[i]
		source.write(data[w.key.Stream][n/2:])
		source.end()
	}
	eventually(t, "a writer notices", func() bool { return writers[0].Status().Err != nil || writers[1].Status().Err != nil })
	server.start()
	for i, w := range writers {
		stores(t, w, sources[i], Status{State: Complete, Kept: n})
		mustRead(t, store, w.key, data[w.key.Stream])
	}
}

// A server that takes connections and doesn't answer is the worst: nothing says that it is away.
func TestTheStoreStalls(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	store.attempt = 2 * time.Second
	server.proxy.set(func() { server.proxy.stalled = true })
	data, key := noise(23, 2*partBytes+1), newKey()
	source := ended(data)
	w := keep(t, store, key, source, 8<<20)
	eventually(t, "an attempt fails", func() bool { return w.Status().Err != nil })
	server.proxy.set(func() { server.proxy.stalled = false })
	stores(t, w, source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

// Whatever number of streams there is, the memory for parts is that of a few.
func TestManyWritersUseFewConnections(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	server.proxy.set(func() { server.proxy.stalled = true })
	data := noise(24, partBytes+1)
	writers, sources := map[int]*Writer{}, map[int]*stream{}
	for n := range 64 {
		key := newKey()
		key.Namespace = fmt.Sprint("team-", n%8)
		sources[n] = ended(data)
		writers[n] = keep(t, store, key, sources[n], 8<<20)
	}
	eventually(t, "all places are taken", func() bool { _, most, _ := server.proxy.counts(); return most >= writesAtOnce })
	server.proxy.set(func() { server.proxy.stalled = false })
	for n, w := range writers {
		stores(t, w, sources[n], Status{State: Complete, Kept: int64(len(data))})
	}
	if _, most, _ := server.proxy.counts(); most > 2*writesAtOnce {
		t.Errorf("%d connections were in use at once", most)
	}
	for i := range partsAtOnce {
		if _, ok := store.parts.TryAcquire(fmt.Sprint("another-", i), 1); !ok {
			t.Errorf("%d places are free of %d", i, partsAtOnce)
		}
	}
}

// Pods that don't hand over what they say they have delay their own namespace only.
func TestPodsThatStallDelayTheirOwnNamespaceOnly(t *testing.T) {
	store := open(t, startServer(t).url())
	ctx, release := context.WithCancel(t.Context())
	defer release()
	for range 50 {
		key, source := newKey(), ended(noise(25, 10))
		key.Namespace = "slow"
		source.onRead = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
		if _, err := store.Keep(ctx, key, source, 100); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the namespace has all that it gets", func() bool {
		release, ok := store.parts.TryAcquire("slow", 1)
		if ok {
			release()
		}
		return !ok
	})
	data, key := noise(26, 3*partBytes), newKey()
	source := ended(data)
	stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	release()
}

// The server's folder is a file system of a few megabytes.
func TestTheStoreIsFullAndGetsRoom(t *testing.T) {
	mount := func(program string, args ...string) *exec.Cmd {
		script := `mount -t tmpfs -o size=3m,mode=700 tmpfs "$0" && exec "$@"`
		dir := args[3]
		return exec.Command("unshare", append([]string{"--user", "--map-root-user", "--mount", "sh", "-c", script, dir, program}, args...)...)
	}
	server := &s3Server{t: t, dir: t.TempDir(), prepare: mount}
	if err := mount("true", "", "", "", server.dir).Run(); err != nil {
		t.Skip("this machine lets nobody mount a file system in a namespace:", err)
	}
	server.begin()
	store := open(t, server.url())
	first, data := newKey(), noise(27, 2*partBytes)
	source := ended(data)
	stores(t, keep(t, store, first, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
	second, more := newKey(), noise(28, 2*partBytes)
	source = ended(more)
	w := keep(t, store, second, source, 8<<20)
	eventually(t, "the store is full", func() bool { return w.Status().Err != nil })
	if _, err := store.Open(t.Context(), second); err == nil {
		t.Error("a stream that isn't stored whole can be read")
	}
	mustRead(t, store, first, data)
	if err := store.Delete(t.Context(), first.UID); err != nil {
		t.Fatal(err)
	}
	stores(t, w, source, Status{State: Complete, Kept: int64(len(more))})
	mustRead(t, store, second, more)
}

// What the store has wrong is an error, and never what somebody reads.
func TestWrongContentIsAnError(t *testing.T) {
	server := startServer(t)
	data := noise(29, 2*partBytes+100)
	index := func(key keyPaths) string { return key.stream(indexName) }
	second := func(key keyPaths) string { return key.stream(part{Offset: partBytes, Size: partBytes}.name()) }
	for name, damage := range map[string]func(t *testing.T, key, other keyPaths){
		"a bit of a part":   func(t *testing.T, key, _ keyPaths) { flip(t, second(key), partBytes/2) },
		"a part is shorter": func(t *testing.T, key, _ keyPaths) { truncate(t, second(key), partBytes-1) },
		"a part is longer":  func(t *testing.T, key, _ keyPaths) { truncate(t, second(key), partBytes+1) },
		"a part is empty":   func(t *testing.T, key, _ keyPaths) { truncate(t, second(key), 0) },
		"a part is gone":    func(t *testing.T, key, _ keyPaths) { remove(t, second(key)) },
		"a part is another one": func(t *testing.T, key, _ keyPaths) {
			copyFile(t, key.stream(part{Size: partBytes}.name()), second(key))
		},
		"a part is another's":      func(t *testing.T, key, other keyPaths) { copyFile(t, second(other), second(key)) },
		"a bit of the index":       func(t *testing.T, key, _ keyPaths) { flip(t, index(key), 200) },
		"the index is shorter":     func(t *testing.T, key, _ keyPaths) { truncate(t, index(key), 300) },
		"the index is empty":       func(t *testing.T, key, _ keyPaths) { truncate(t, index(key), 0) },
		"the index is huge":        func(t *testing.T, key, _ keyPaths) { truncate(t, index(key), 1<<40) },
		"the index is another's":   func(t *testing.T, key, other keyPaths) { copyFile(t, index(other), index(key)) },
		"the index isn't an index": func(t *testing.T, key, _ keyPaths) { write(t, index(key), `{"sha256":"","index":{}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, server.url())
			key, other := newKey(), newKey()
			for k, content := range map[keyPaths][]byte{{server, key}: data, {server, other}: noise(30, len(data))} {
				source := ended(content)
				stores(t, keep(t, store, k.key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(content))})
			}
			damage(t, keyPaths{server, key}, keyPaths{server, other})
			r, err := store.Open(t.Context(), key)
			var got []byte
			if err == nil {
				got, err = readRange(t.Context(), r, 0, len(data), 100_000)
				if len(got) != partBytes || string(got) != string(data[:partBytes]) {
					t.Errorf("before the damage %d bytes are handed out", len(got))
				}
			}
			if !isCorrupt(err) || (name == "a part is shorter" && !strings.Contains(err.Error(), "1048575 bytes instead of 1048576")) {
				t.Errorf("the error is %v", err)
			}
			// The same writer mends what it can.
			remove(t, index(keyPaths{server, key}))
			source := ended(data)
			stores(t, keep(t, store, key, source, 8<<20), source, Status{State: Complete, Kept: int64(len(data))})
			mustRead(t, store, key, data)
		})
	}
}

func TestASourceThatHandsOverSomethingElseIsNotStored(t *testing.T) {
	store := open(t, startServer(t).url())
	key, source := newKey(), ended(noise(31, 100))
	source.sha256 = hashOf([]byte("something else"))
	if status := awaitState(t, keep(t, store, key, source, 1000), source); status.State != Lost || status.Err == nil || status.Kept != 0 {
		t.Errorf("the stream is %+v", status)
	}
	if _, err := store.Open(t.Context(), key); err == nil {
		t.Error("the stream can be read")
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	data := readFile(t, path)
	data[at] ^= 1
	write(t, path, string(data))
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	write(t, to, string(readFile(t, from)))
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// keyPaths has the files of a stream's objects.
type keyPaths struct {
	server *s3Server
	key    output.Key
}

func (k keyPaths) stream(object string) string {
	return k.server.path(filepath.Join("calls", string(k.key.UID), string(k.key.Stream), object))
}

func isCorrupt(err error) bool { return errors.As(err, new(*CorruptError)) }

func TestABucketThatIsNotThereIsAnError(t *testing.T) {
	server := startServer(t)
	store := open(t, strings.Replace(server.url(), testBucket, "another", 1))
	if _, err := store.Open(t.Context(), newKey()); err == nil || errors.Is(err, output.ErrNotFound) {
		t.Errorf("reading is %v", err)
	}
	source := ended([]byte("some output"))
	w := keep(t, store, newKey(), source, 100)
	eventually(t, "the writer says so", func() bool { err := w.Status().Err; return err != nil && strings.Contains(err.Error(), "NoSuchBucket") })
}

func TestWhoHasOtherKeysGetsNothing(t *testing.T) {
	server := startServer(t)
	key := newKey()
	keepOne(t, open(t, server.url()), key)
	for _, variable := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"} {
		t.Setenv(variable, "somebody-else")
		stranger := open(t, server.url())
		if _, err := stranger.Open(t.Context(), key); err == nil || errors.Is(err, output.ErrNotFound) {
			t.Errorf("with another %s: %v", variable, err)
		}
		if err := stranger.Delete(t.Context(), key.UID); err == nil {
			t.Errorf("with another %s output can be deleted", variable)
		}
	}
	file, err := os.Stat(server.path("calls/" + string(key.UID) + "/stdout/" + indexName))
	if err != nil || file.Mode().Perm() != 0o600 {
		t.Errorf("others on the machine can read the index: %v, %v", file.Mode(), err)
	}
	folder, err := os.Stat(server.path("calls"))
	if err != nil || folder.Mode().Perm() != 0o700 {
		t.Errorf("others on the machine can read the folder: %v, %v", folder.Mode(), err)
	}
}
