package store

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkRange reads 64 KiB somewhere in a stream that nobody has read, as a client does that asks once: index and part.
func BenchmarkRange(b *testing.B) {
	server := startServer(b)
	store := open(b, server.url())
	data, key := noise(60, 8*partBytes), newKey()
	w, err := store.Keep(b.Context(), key, ended(data), 8<<20)
	if err != nil {
		b.Fatal(err)
	}
	<-w.Done()
	p := make([]byte, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		store.cache.close()
		store.cache = newPartCache(cachedParts, readsAtOnce)
		r, err := store.Open(b.Context(), key)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.ReadAt(b.Context(), p, rand.Int64N(int64(len(data)-len(p)))); err != nil {
			b.Fatal(err)
		}
	}
}
