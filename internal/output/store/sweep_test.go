package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/output"
)

// keepOne stores a short stream of a call.
func keepOne(t *testing.T, store *Store, key output.Key) {
	t.Helper()
	source := ended([]byte("some output"))
	stores(t, keep(t, store, key, source, 1000), source, Status{State: Complete, Kept: 11})
}

// age makes all files below a folder as old.
func age(t *testing.T, folder string, by time.Duration) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		then := time.Now().Add(-by)
		return os.Chtimes(path, then, then)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// places are a server's bucket and a folder, with the folder on this machine where each has its objects.
func places(t *testing.T) map[string]string {
	server, folder := startServer(t), t.TempDir()
	return map[string]string{server.url(): server.path(""), "file://" + folder: folder}
}

func TestTheOutputOfACallIsDeletedAndNoOther(t *testing.T) {
	for url, folder := range places(t) {
		store, neighbour := open(t, url), open(t, addPrefix(url, "other/cluster"))
		store.pageSize = 2
		key := newKey()
		// Names that begin with the name of the call.
		alike, longer := key, key
		alike.UID += "-1"
		longer.UID += "0"
		for _, k := range []output.Key{key, alike, longer} {
			keepOne(t, store, k)
		}
		keepOne(t, neighbour, key)
		growing, source := key, newStream()
		growing.Stream = output.Stderr
		source.write(noise(40, 3*partBytes))
		w := keep(t, store, growing, source, 8<<20)
		eventually(t, "parts are stored", func() bool { return len(objects(t, store, growing)) == 2+3 })
		for range 2 {
			if err := store.Delete(t.Context(), key.UID); err != nil {
				t.Fatal(err)
			}
		}
		if status := awaitState(t, w, source); !errors.Is(status.Err, errDeleted) {
			t.Errorf("the writer of a deleted call is %+v", status)
		}
		if left := objects(t, store, key); len(left) != 0 {
			t.Errorf("of a deleted call the store has %q", left)
		}
		if _, err := os.Stat(filepath.Join(folder, "calls", string(key.UID))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder of a deleted call: %v", err)
		}
		for _, k := range []output.Key{key, growing} {
			if _, err := store.Open(t.Context(), k); !errors.Is(err, output.ErrNotFound) {
				t.Errorf("a deleted stream: %v", err)
			}
		}
		mustRead(t, store, alike, []byte("some output"))
		mustRead(t, store, longer, []byte("some output"))
		mustRead(t, neighbour, key, []byte("some output"))
	}
}

// A folder is listed while files come and go in it, as they do while parts are written.
func TestAFolderThatChangesIsListed(t *testing.T) {
	folder := t.TempDir()
	store := open(t, "file://"+folder)
	key := newKey()
	keepOne(t, store, key)
	want := objects(t, store, key)
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 0; t.Context().Err() == nil; n++ {
			path := filepath.Join(folder, "calls", string(key.UID), fmt.Sprintf("x-%d", n%8))
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Remove(path)); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
	})
	t.Cleanup(writer.Wait)
	for range 1000 {
		found := slices.DeleteFunc(objects(t, store, key), func(name string) bool { return strings.HasPrefix(name, "x-") })
		if !slices.Equal(found, want) {
			t.Fatalf("listed %q, not %q", found, want)
		}
	}
}

func addPrefix(url, prefix string) string {
	if location, err := ParseLocation(url + "&prefix=" + prefix); err == nil && location.prefix != "" {
		return url + "&prefix=" + prefix
	}
	return url + "?prefix=" + prefix
}

func TestASweepRemovesWhatIsOldAndHasNoCall(t *testing.T) {
	for url, folder := range places(t) {
		store, neighbour := open(t, url), open(t, addPrefix(url, "other"))
		store.pageSize = 3
		var old, alive, young []output.Key
		for n := range 10 {
			key := newKey()
			keepOne(t, store, key)
			if n%2 == 0 {
				old = append(old, key)
			} else {
				alive = append(alive, key)
			}
		}
		keepOne(t, neighbour, old[0])
		write(t, mkdir(t, folder, "calls", "not a UID")+"/file", "somebody's")
		write(t, filepath.Join(folder, "calls", "file"), "somebody's")
		age(t, folder, sweepAge+time.Minute)
		for range 3 {
			young = append(young, newKey())
			keepOne(t, store, young[len(young)-1])
		}
		// One stream is old, the other one is being stored.
		mixed := old[len(old)-1]
		old = old[:len(old)-1]
		mixed.Stream = output.Stderr
		keepOne(t, store, mixed)

		isAlive := func(uid types.UID) bool {
			for _, key := range alive {
				if key.UID == uid {
					return true
				}
			}
			return false
		}
		for _, want := range []int{len(old), 0} {
			if removed, err := store.Sweep(t.Context(), time.Now(), isAlive); err != nil || removed != want {
				t.Errorf("%s: the sweep removes %d calls instead of %d, %v", url, removed, want, err)
			}
		}
		for _, key := range old {
			if left := objects(t, store, key); len(left) != 0 {
				t.Errorf("of an old call without an object the store has %q", left)
			}
		}
		for _, key := range append(append(alive, young...), mixed) {
			mustRead(t, store, key, []byte("some output"))
		}
		mustRead(t, neighbour, old[0], []byte("some output"))
		for _, path := range []string{"calls/not a UID/file", "calls/file"} {
			if text := string(readFile(t, filepath.Join(folder, path))); text != "somebody's" {
				t.Errorf("%s has %q", path, text)
			}
		}
	}
}

func mkdir(t *testing.T, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestASweepOfAStoreThatIsAwaySaysSo(t *testing.T) {
	server := startServer(t)
	store := open(t, server.url())
	server.proxy.set(func() { server.proxy.away = true })
	if removed, err := store.Sweep(t.Context(), time.Now(), func(types.UID) bool { return false }); err == nil || removed != 0 {
		t.Errorf("it removes %d calls, %v", removed, err)
	}
	if err := store.Delete(t.Context(), newKey().UID); err == nil {
		t.Error("deleting is no error")
	}
	if _, err := store.Open(t.Context(), newKey()); err == nil || errors.Is(err, output.ErrNotFound) {
		t.Errorf("reading is %v: a stream that can't be asked for isn't one that isn't there", err)
	}
}
