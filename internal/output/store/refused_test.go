package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/internal/metrics"
	"toolcall.dev/operator/internal/output"
)

// toServer sends every request to a server of the test.
type toServer struct{ u *url.URL }

func (s toServer) RoundTrip(r *http.Request) (*http.Response, error) {
	r.URL.Scheme, r.URL.Host = s.u.Scheme, s.u.Host
	return http.DefaultTransport.RoundTrip(r)
}

// googleStore asks a server of the test as it would ask Google's.
func googleStore(t *testing.T, answer http.HandlerFunc) *Store {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client, err := gcp.NewHTTPClient(toServer{u}, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "x"}))
	if err != nil {
		t.Fatal(err)
	}
	b, err := gcsblob.OpenBucket(t.Context(), client, "b", nil)
	if err != nil {
		t.Fatal(err)
	}
	store := open(t, "file://"+t.TempDir())
	store.bucket = b
	return store
}

// Google's library tells 403 as something that isn't there.
func TestWhatGoogleForbidsIsAnError(t *testing.T) {
	var asked atomic.Int64
	store := googleStore(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodDelete || r.URL.Query().Get("prefix") == "" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error":{"code":403,"message":"does not have storage.objects.delete access","errors":[{"reason":"forbidden"}]}}`)
			return
		}
		fmt.Fprint(w, `{"kind":"storage#objects","items":[{"name":"calls/aaaa/stdout/index.json","bucket":"b","size":"1","updated":"2020-01-01T00:00:00Z"}]}`)
	})
	if _, err := store.Open(t.Context(), newKey()); err == nil || errors.Is(err, output.ErrNotFound) {
		t.Errorf("reading is %v", err)
	}
	if err := store.Delete(t.Context(), "aaaa"); err == nil || asked.Load() > 10 {
		t.Errorf("deleting is %v, after %d requests", err, asked.Load())
	}
}

func TestAGoogleObjectThatIsNotThereIsNotKept(t *testing.T) {
	for message, isAbsent := range map[string]bool{"No such object: b/calls/x": true, "The specified bucket does not exist.": false} {
		store := googleStore(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if isAbsent && strings.HasSuffix(r.URL.Path, "/o") {
				fmt.Fprint(w, `{"kind":"storage#objects"}`)
				return
			}
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"error":{"code":404,"message":%q}}`, message)
		})
		if _, err := store.Open(t.Context(), newKey()); errors.Is(err, output.ErrNotFound) != isAbsent {
			t.Errorf("%s: %v", message, err)
		}
	}
}

// A call that was created after the calls were listed has output that grows old while a sweep lasts.
func TestALongSweepLeavesWhatIsYoungerThanItsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, _ := folderStore(t)
		defer store.Close()
		store.pageSize = 1
		keyOf := func(uid types.UID) output.Key {
			return output.Key{Namespace: "ns", Name: string(uid), UID: uid, Stream: output.Stdout}
		}
		keepOne(t, store, keyOf("aaaa"))
		// The folder's times are the machine's, not those of the bubble.
		known := time.Unix(1<<40, 0)
		store.pageSize = 1
		removed, err := store.Sweep(t.Context(), time.Unix(0, 0), func(types.UID) bool {
			time.Sleep(100 * 365 * 24 * time.Hour)
			return false
		})
		if err != nil || removed != 0 {
			t.Errorf("removed %d, %v", removed, err)
		}
		if removed, err := store.Sweep(t.Context(), known, func(types.UID) bool { return false }); err != nil || removed != 1 {
			t.Errorf("then %d, %v", removed, err)
		}
	})
}

// noHash is a stream whose hash nobody knows: a process outside of the call's tree held the pipe.
type noHash struct{ *stream }

func (n *noHash) Info() output.Info {
	i := n.stream.Info()
	i.SHA256 = ""
	return i
}

func TestAStreamWithoutAHashIsStored(t *testing.T) {
	store := open(t, "file://"+t.TempDir())
	data, key := noise(1, 3*partBytes+5), newKey()
	w, err := store.Keep(t.Context(), key, &noHash{ended(data)}, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	<-w.Done()
	if s := w.Status(); s.State != Complete || s.Kept != int64(len(data)) {
		t.Fatalf("%+v", s)
	}
	r, err := store.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := readRange(t.Context(), r, 0, len(data), 100_000); err != nil || string(got) != string(data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Several namespaces of pods that don't hand over what they say.
func TestSlowPodsOfSeveralNamespacesDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, _, _ := folderStore(t)
		defer store.Close()
		for n := range 200 {
			key := newKey()
			key.Namespace = fmt.Sprint("slow-", n%8)
			source := ended(noise(25, 10))
			source.onRead = func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() }
			if _, err := store.Keep(t.Context(), key, source, 8<<20); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		key := newKey()
		key.Namespace = "honest"
		began := time.Now()
		w, err := store.Keep(t.Context(), key, ended(noise(26, 16<<20)), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		<-w.Done()
		if took := time.Since(began); w.Status().State != Complete || took > time.Second {
			t.Errorf("%+v after %s", w.Status(), took)
		}
	})
}

func TestReadersAreNotToldWhereTheStoreIs(t *testing.T) {
	server := startServer(t)
	location, err := ParseLocation(server.url())
	if err != nil {
		t.Fatal(err)
	}
	told := map[metrics.StoreOperation]int{}
	store, err := Open(t.Context(), location, func(o metrics.StoreOperation, _ error) { told[o]++ })
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server.proxy.set(func() { server.proxy.away = true })
	_, err = store.Open(t.Context(), newKey())
	if !errors.Is(err, errAway) || told[metrics.StoreRead] != 1 {
		t.Errorf("%v, told %v", err, told)
	}
}
