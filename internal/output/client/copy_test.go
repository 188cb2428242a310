package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/output"
	outputclient "toolcall.dev/operator/internal/output/client"
	"toolcall.dev/operator/internal/subresources"
)

// kept records what a sink receives.
type kept struct {
	bytes.Buffer
	missing []string
	retries int
}

func (k *kept) sink() outputclient.Sink {
	return outputclient.Sink{
		Write:    func(p []byte) error { _, err := k.Buffer.Write(p); return err },
		Missing:  func(start, end int64) { k.missing = append(k.missing, fmt.Sprintf("%d-%d at %d", start, end, k.Len())) },
		Retrying: func(error) { k.retries++ },
	}
}

// numbered is text in which each byte's place can be told.
func numbered(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%08d\n", i)
	}
	return b.Bytes()[:n]
}

// Connections break at any byte while the process writes, and the server is restarted: what arrives is what was written.
func TestAFollowGoesOnAfterEachBreak(t *testing.T) {
	s := newSpace(t)
	const size = 1 << 20
	for name, seed := range map[string]uint64{"one": 1, "another": 2} {
		t.Run(name, func(t *testing.T) {
			call := s.call(name)
			stream, want := api.Add(call, output.Stdout), numbered(size)
			cuts, through := newCutter(t, seed)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, half := &kept{}, make(chan struct{})
			sink := got.sink()
			write := sink.Write
			sink.Write = func(p []byte) error {
				if before := got.Len(); before < size/2 && before+len(p) >= size/2 {
					close(half)
				}
				return write(p)
			}
			type outcome struct {
				end outputclient.End
				err error
			}
			done := make(chan outcome, 1)
			reader := newClient(t, through)
			go func() {
				end, err := reader.Copy(ctx, outputclient.Query{Namespace: s.namespace, Name: name, Stream: output.Stdout, Follow: true}, sink)
				done <- outcome{end, err}
			}()
			random := rand.New(rand.NewPCG(seed, 2))
			for left := want; len(left) > 0; {
				n := min(len(left), 1+random.IntN(50_000))
				if left = left[n:]; len(left) < size/3 {
					<-half
					must(t, api.Restart())
					n += len(left)
					left = nil
				}
				_, _ = stream.Write(want[size-len(left)-n : size-len(left)])
			}
			stream.Finish()
			o := <-done
			if o.err != nil || !o.end.Complete || !o.end.Verified || o.end.Offset != size || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes, %+v, %v", got.Len(), o.end, o.err)
			}
			if cuts.count() == 0 || got.retries == 0 {
				t.Errorf("%d cuts, %d retries: nothing was tested", cuts.count(), got.retries)
			}
		})
	}
}

// What is read without following is what there was at the first answer.
func TestPartsOfAStream(t *testing.T) {
	s := newSpace(t)
	stream := api.Add(s.call("c"), output.Stderr)
	_, _ = stream.Write([]byte("0123456789"))
	c := newClient(t, suite.Server().Config)
	for name, tc := range map[string]struct {
		query    outputclient.Query
		want     string
		complete bool
	}{
		"all so far":             {outputclient.Query{}, "0123456789", false},
		"from an offset":         {outputclient.Query{Offset: 7}, "789", false},
		"a part":                 {outputclient.Query{Offset: 2, Limit: 3}, "234", false},
		"more than there is":     {outputclient.Query{Offset: 8, Limit: 30}, "89", false},
		"nothing, at the end":    {outputclient.Query{Offset: 10}, "", false},
		"a part that is awaited": {outputclient.Query{Offset: 8, Limit: 2, Follow: true}, "89", false},
	} {
		q, got := tc.query, &kept{}
		q.Namespace, q.Name, q.Stream = s.namespace, "c", output.Stderr
		end, err := c.Copy(t.Context(), q, got.sink())
		if err != nil || got.String() != tc.want || end.Complete != tc.complete || end.Offset != tc.query.Offset+int64(len(tc.want)) {
			t.Errorf("%s: %q, %+v, %v", name, got.String(), end, err)
		}
	}
	stream.Finish()
	got := &kept{}
	end, err := c.Copy(t.Context(), outputclient.Query{Namespace: s.namespace, Name: "c", Stream: output.Stderr}, got.sink())
	if err != nil || !end.Complete || !end.Verified || got.String() != "0123456789" {
		t.Errorf("%q, %+v, %v", got.String(), end, err)
	}
}

// A part that wasn't kept is reported once, in its place, and what is behind it comes.
func TestAPartThatWasNotKept(t *testing.T) {
	s := newSpace(t)
	c := newClient(t, suite.Server().Config)
	for name, tc := range map[string]struct {
		start, end int64
		query      outputclient.Query
		want       string
		missing    []string
	}{
		"in the middle":                 {3, 7, outputclient.Query{}, "012789", []string{"3-7 at 3"}},
		"followed":                      {3, 7, outputclient.Query{Follow: true}, "012789", []string{"3-7 at 3"}},
		"at the start":                  {0, 4, outputclient.Query{}, "456789", []string{"0-4 at 0"}},
		"at the end":                    {8, 10, outputclient.Query{}, "01234567", []string{"8-10 at 8"}},
		"everything":                    {0, 10, outputclient.Query{}, "", []string{"0-10 at 0"}},
		"from within":                   {3, 7, outputclient.Query{Offset: 5}, "789", []string{"5-7 at 0"}},
		"a wanted part around it":       {3, 7, outputclient.Query{Offset: 2, Limit: 6}, "27", []string{"3-7 at 1"}},
		"a wanted part that ends there": {3, 7, outputclient.Query{Offset: 2, Limit: 3}, "2", []string{"3-5 at 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			stream := api.Add(s.call(id), output.Stdout)
			_, _ = stream.Write([]byte("0123456789"))
			stream.Leave(tc.start, tc.end)
			stream.Finish()
			q, got := tc.query, &kept{}
			q.Namespace, q.Name, q.Stream = s.namespace, id, output.Stdout
			end, err := c.Copy(t.Context(), q, got.sink())
			if err != nil || end.Verified || got.String() != tc.want || !slices.Equal(got.missing, tc.missing) {
				t.Errorf("%q, missing %q, %+v, %v", got.String(), got.missing, end, err)
			}
		})
	}
}

// Bytes that aren't those that were written are an error, though all came.
func TestAWrongHashIsAnError(t *testing.T) {
	s := newSpace(t)
	stream := api.Add(s.call("c"), output.Stdout)
	_, _ = stream.Write([]byte("hello"))
	stream.Claim(strings.Repeat("0", 64))
	stream.Finish()
	_, err := newClient(t, suite.Server().Config).Copy(t.Context(), outputclient.Query{Namespace: s.namespace, Name: "c", Stream: output.Stdout, Follow: true}, (&kept{}).sink())
	if !errors.Is(err, outputclient.ErrContent) {
		t.Errorf("got %v", err)
	}
}

// Errors that asking again doesn't help against are final.
func TestFinalErrors(t *testing.T) {
	s := newSpace(t)
	call := s.call("c")
	_, _ = api.Add(call, output.Stdout).Write([]byte("hello"))
	nobody := rest.CopyConfig(suite.Server().Config)
	nobody.Impersonate.UserName = "nobody"
	for name, tc := range map[string]struct {
		conf  *rest.Config
		query outputclient.Query
		is    func(error) bool
	}{
		"no such call":         {suite.Server().Config, outputclient.Query{Name: "none"}, apierrors.IsNotFound},
		"another call":         {suite.Server().Config, outputclient.Query{Name: "c", UID: "other"}, apierrors.IsConflict},
		"nobody's rights":      {nobody, outputclient.Query{Name: "c"}, apierrors.IsForbidden},
		"no such stream":       {suite.Server().Config, outputclient.Query{Name: "c", Stream: "stdlog"}, apierrors.IsBadRequest},
		"an offset beyond all": {suite.Server().Config, outputclient.Query{Name: "c", Offset: 6}, func(err error) bool { return strings.Contains(err.Error(), "it has 5 bytes") }},
	} {
		q := tc.query
		q.Namespace = s.namespace
		if q.Stream == "" {
			q.Stream = output.Stdout
		}
		got := &kept{}
		if _, err := newClient(t, tc.conf).Copy(t.Context(), q, got.sink()); err == nil || !tc.is(err) || errors.Is(err, outputclient.ErrNotServed) || got.Len() > 0 || got.retries > 0 {
			t.Errorf("%s: %v, %q", name, err, got.String())
		}
	}
	full := errors.New("full")
	_, err := newClient(t, suite.Server().Config).Copy(t.Context(), outputclient.Query{Namespace: s.namespace, Name: "c", Stream: output.Stdout}, outputclient.Sink{Write: func([]byte) error { return full }})
	if !errors.Is(err, full) {
		t.Errorf("a sink that is full: %v", err)
	}
}

func TestAClusterWithoutTheAPI(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	c := newClient(t, &rest.Config{Host: server.URL})
	_, err := c.Copy(t.Context(), outputclient.Query{Namespace: "n", Name: "c", Stream: output.Stdout, Follow: true}, (&kept{}).sink())
	if !errors.Is(err, outputclient.ErrNotServed) {
		t.Errorf("got %v", err)
	}
}

// The names that both sides of the API use are the same.
func TestNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	want := []string{
		subresources.GroupVersion.String(), subresources.HeaderUID, subresources.HeaderOffset, subresources.HeaderBytes,
		subresources.HeaderComplete, subresources.HeaderSHA256, string(subresources.CauseNextOffset),
	}
	if got := outputclient.Names(); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}
