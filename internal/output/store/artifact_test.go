package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolcall.dev/operator/internal/output"
)

func artifactOf(key output.Key, path string) output.Key {
	key.Stream, key.Artifact = "", path
	return key
}

// plainName is what objects of a call are named behind its prefix.
var plainName = regexp.MustCompile(`^(stdout|artifacts/[0-9a-f]{64})/(index\.json|part-[0-9]+-[0-9]+)$`)

func TestArtifactsOfACallAreApartWhateverTheirPaths(t *testing.T) {
	for url, folder := range places(t) {
		store, call, victim := open(t, url), newKey(), newKey()
		keepOne(t, store, call)
		keepOne(t, store, victim)
		contents := map[string][]byte{}
		for i, path := range []string{
			"out/plot.png", "out/Plot.png", "/out/plot.png", "out/plot.png/", "stdout", "stdout/index.json", "index.json", ".", "..", "../stdout", "../" + string(victim.UID) + "/stdout/index.json",
			"/", "a//b", "a/b", "new\nline", "%2e%2e", "ü", "u\u0308", strings.Repeat("é", 128), "artifact-", " ", "a\u202eb", "\x01", "con", "a:b", "a\\b",
		} {
			data := noise(uint64(100+i), 10+i)
			source := ended(data)
			stores(t, keep(t, store, artifactOf(call, path), source, MaxLimit), source, Status{State: Complete, Kept: int64(len(data))})
			contents[path] = data
		}
		for path, data := range contents {
			mustRead(t, store, artifactOf(call, path), data)
			if _, err := store.Open(t.Context(), artifactOf(victim, path)); !errors.Is(err, output.ErrNotFound) {
				t.Errorf("another call's %q is %v", path, err)
			}
		}
		mustRead(t, store, call, []byte("some output"))
		mustRead(t, store, victim, []byte("some output"))
		for _, name := range objects(t, store, call) {
			if !plainName.MatchString(name) {
				t.Errorf("an object is %q", name)
			}
		}
		if err := store.Delete(t.Context(), call.UID); err != nil {
			t.Fatal(err)
		}
		if left := objects(t, store, call); len(left) != 0 {
			t.Errorf("%q are left in %s", left, folder)
		}
		mustRead(t, store, victim, []byte("some output"))
	}
}

func TestALargeArtifactIsStoredInParts(t *testing.T) {
	store := open(t, startServer(t).url())
	data, key := noise(7, 3*partBytes+17), artifactOf(newKey(), "model.bin")
	source := ended(data)
	stores(t, keep(t, store, key, source, MaxLimit), source, Status{State: Complete, Kept: int64(len(data))})
	mustRead(t, store, key, data)
}

func TestAnArtifactThatIsNoneIsNotKept(t *testing.T) {
	store := open(t, "file://"+t.TempDir())
	for name, change := range map[string]func(*output.Key){
		"of a stream too": func(k *output.Key) { k.Stream = output.Stdout },
		"too long":        func(k *output.Key) { k.Artifact = strings.Repeat("x", maxArtifactPath+1) },
		"of no call":      func(k *output.Key) { k.UID = "../x" },
		"of no path":      func(k *output.Key) { k.Artifact = "" },
	} {
		key := artifactOf(newKey(), "a")
		change(&key)
		if _, err := store.Keep(context.Background(), key, ended(nil), 10); err == nil {
			t.Errorf("%s: kept", name)
		}
		if _, err := store.Open(t.Context(), key); err == nil || errors.Is(err, output.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An index that stands in another one's place, with its right hash, is found by the path in it.
func TestAnIndexIsThatOfItsArtifact(t *testing.T) {
	folder := t.TempDir()
	store, call := open(t, "file://"+folder), newKey()
	a, b := artifactOf(call, "a"), artifactOf(call, "b")
	keepOne(t, store, a)
	keepOne(t, store, b)
	where := func(key output.Key) string {
		prefix, err := streamPrefix(key)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(folder, prefix, indexName)
	}
	index, err := os.ReadFile(where(a))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(where(b), index, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), b); !errors.As(err, new(*CorruptError)) {
		t.Errorf("got %v", err)
	}
	mustRead(t, store, a, []byte("some output"))
}
