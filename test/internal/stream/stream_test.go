package stream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"toolcall.dev/operator/internal/output"
	"toolcall.dev/operator/internal/subresources"
)

// The program and the reader agree on every byte.
func TestTheProgramWritesWhatTheReaderGives(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 isn't here")
	}
	w := Written{Seed: "seed", Blocks: 3}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), python, "-c", w.Python(0))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for of, got := range map[output.Stream]*bytes.Buffer{output.Stdout: &stdout, output.Stderr: &stderr} {
		checker := NewChecker(w.Reader(of))
		if _, err := checker.Write(got.Bytes()); err != nil {
			t.Errorf("%s: %v", of, err)
		}
		if err := checker.Rest(); err != nil || checker.Bytes() != w.Bytes() {
			t.Errorf("%s has %d bytes: %v", of, checker.Bytes(), err)
		}
	}
	if w.SHA256(output.Stdout) == w.SHA256(output.Stderr) {
		t.Error("both streams are the same")
	}
}

func TestACheckerSeesEachMistake(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes []string
		wrong  string
	}{
		"nothing wrong":       {[]string{"ab", "", "cdef"}, ""},
		"a byte lost":         {[]string{"ab", "def"}, "offset 2"},
		"bytes doubled":       {[]string{"abc", "cdef"}, "offset 3"},
		"bytes swapped":       {[]string{"abdcef"}, "offset 2"},
		"bytes after the end": {[]string{"abcdef", "g"}, "after the end"},
		"bytes not there":     {[]string{"abc"}, "3 bytes are missing"},
	} {
		checker := NewChecker(strings.NewReader("abcdef"))
		var err error
		for _, text := range test.writes {
			if err == nil {
				_, err = checker.Write([]byte(text))
			}
		}
		if err == nil {
			err = checker.Rest()
		}
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// answers serve one request each, in order.
func follower(t *testing.T, to io.Writer, answers ...func(w http.ResponseWriter, offset int64)) *Follower {
	t.Helper()
	next := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Group+"/namespaces/space/toolcalls/call/log" || next >= len(answers) {
			t.Errorf("request %d for %s", next, r.URL)
			return
		}
		offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
		next++
		answers[next-1](w, offset)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &Follower{Client: c, Log: Log{Namespace: "space", Name: "call", Stream: output.Stdout}, To: to}
}

// sends is an answer with a part of a stream of so many bytes.
func sends(text string, total int, complete bool, then func()) func(http.ResponseWriter, int64) {
	return func(w http.ResponseWriter, offset int64) {
		w.Header().Set(subresources.HeaderOffset, strconv.FormatInt(offset, 10))
		w.Header().Set(subresources.HeaderBytes, strconv.Itoa(total))
		w.Header().Set(subresources.HeaderComplete, strconv.FormatBool(complete))
		w.Header().Set(subresources.HeaderSHA256, "hash")
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
		if then != nil {
			then()
		}
	}
}

func refuses(code int) func(http.ResponseWriter, int64) {
	return func(w http.ResponseWriter, _ int64) {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(code)
	}
}

func breaks() { panic(http.ErrAbortHandler) }

func TestAFollowerGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	f := follower(t, &got,
		refuses(http.StatusServiceUnavailable), sends("one ", 4, false, nil), sends("two ", 8, false, breaks), refuses(http.StatusTooManyRequests),
		sends("th", 13, true, breaks), sends("ree", 13, true, nil))
	if err := f.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got.String() != "one two three" || f.At() != 13 || f.Breaks() != 5 || f.SHA256 != "hash" {
		t.Errorf("got %q, %d bytes, after %d breaks, hash %q", got.String(), f.At(), f.Breaks(), f.SHA256)
	}
}

func TestAFollowerEndsWhereAskingAgainDoesNotHelp(t *testing.T) {
	t.Parallel()
	elsewhere := func(w http.ResponseWriter, _ int64) { sends("x", 1, true, nil)(w, 7) }
	left := func(w http.ResponseWriter, offset int64) {
		w.Header().Set(subresources.HeaderMissing, "4-7")
		sends("x", 9, true, nil)(w, offset)
	}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, int64)
		wrong  string
	}{
		"not kept":         {refuses(http.StatusGone), "410"},
		"forbidden":        {refuses(http.StatusForbidden), "403"},
		"begins elsewhere": {elsewhere, `begins at "7"`},
		"a part left out":  {left, "4-7"},
		"another byte":     {sends("y", 1, true, nil), "offset 0"},
		"more than all":    {sends("xx", 1, true, nil), "2 bytes came of a stream of 1"},
	} {
		err := follower(t, NewChecker(strings.NewReader("xx")), test.answer).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	f := follower(t, io.Discard)
	f.Client.base.Host = "127.0.0.1:1"
	if err := f.Run(ctx); err == nil || !strings.Contains(err.Error(), "context deadline exceeded") {
		t.Error(err)
	}
}
