package follow_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/follow"
)

// kubeletLog serves the lines from a channel until the client disconnects. Closing the channel breaks the connection.
func kubeletLog(lines <-chan string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for {
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case line, ok := <-lines:
				if !ok {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, line)
			}
		}
	}
}

func send(t *testing.T, to chan<- string, line string) {
	t.Helper()
	select {
	case to <- line:
	case <-time.After(testTimeout):
		t.Fatalf("no client reads the log for %q", line)
	}
}

func TestLiveOutput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lines := make(chan string)
	pod := f.kubelet(kubeletLog(lines))
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	send(t, lines, "one\n")
	until(t, "live output", s.wrote)
	if out, _ := s.text(); out != "one\n" {
		t.Errorf("while it runs there is %q", out)
	}
	send(t, lines, "oops\n")
	until(t, "more live output", s.wrote)
	f.finish(call, "one\ntwo", "oops\n")
	must(t, result(t, done).err)
	if out, errs := s.text(); out != "one\noops\ntwo" || errs != "" || len(s.notices) > 0 {
		t.Errorf("got %q, %q, notices %q", out, errs, s.notices)
	}
}

// The kubelet serves no log of a container until it has noticed that the container runs.
func TestLiveOutputWaitsForTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lines, tries := make(chan string, 1), 0
	serve := kubeletLog(lines)
	pod := f.kubelet(func(rw http.ResponseWriter, r *http.Request) {
		if tries++; tries < 4 {
			http.Error(rw, "container is waiting to start: ContainerCreating", http.StatusBadRequest)
			return
		}
		serve(rw, r)
	})
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	lines <- "live\n"
	until(t, "live output", s.wrote)
	f.finish(call, "live\n", "")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "live\n" {
		t.Errorf("got %q", out)
	}
}

func TestLiveOutputContinuesAfterABrokenConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := make(chan string), make(chan string)
	connections := 0
	pod := f.kubelet(func(rw http.ResponseWriter, r *http.Request) {
		if connections++; connections == 1 {
			kubeletLog(first)(rw, r)
			return
		}
		_, _ = io.WriteString(rw, "one\n")
		kubeletLog(second)(rw, r)
	})
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	send(t, first, "one\n")
	until(t, "live output", s.wrote)
	close(first)
	send(t, second, "two\n")
	until(t, "live output of the second connection", s.wrote)
	f.finish(call, "one\ntwo\n", "")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "one\ntwo\n" || len(s.notices) > 0 {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}

func TestSeparateStreams(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pod := f.kubelet(func(http.ResponseWriter, *http.Request) { t.Error("the mixed log was read") })
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	watcher := s.watcher()
	watcher.Separate = true
	done := f.wait(t.Context(), f.clients(), call, watcher)
	until(t, "start", s.changed)
	f.finish(call, "out\n", "err\n")
	must(t, result(t, done).err)
	if out, errs := s.text(); out != "out\n" || errs != "err\n" {
		t.Errorf("got %q and %q", out, errs)
	}
}

func TestAClusterThatSeparatesStreams(t *testing.T) {
	t.Parallel()
	if apiServer == nil {
		t.Skip("needs an API server: set KUBEBUILDER_ASSETS")
	}
	config, err := splitting()
	must(t, err)
	f := newFixtureAt(t, config)
	out, errs := make(chan string), make(chan string)
	pod := f.kubelet(func(rw http.ResponseWriter, r *http.Request) {
		kubeletLog(map[string]chan string{"Stdout": out, "Stderr": errs}[r.URL.Query().Get("stream")])(rw, r)
	})
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	watcher := s.watcher()
	watcher.Separate = true
	done := f.wait(t.Context(), f.clients(), call, watcher)
	send(t, out, "one\n")
	until(t, "live output", s.wrote)
	send(t, errs, "oops\n")
	until(t, "live errors", s.wrote)
	f.finish(call, "one\ntwo\n", "oops\nouch\n")
	must(t, result(t, done).err)
	gotOut, gotErrs := s.text()
	if gotOut != "one\ntwo\n" || gotErrs != "oops\nouch\n" || len(s.notices) > 0 {
		t.Errorf("got %q, %q, notices %q", gotOut, gotErrs, s.notices)
	}
}

// cut returns a change of a status whose text is a truncated form of what was written.
func cut(written string) func(*v1alpha1.ToolCallStatus) {
	return func(s *v1alpha1.ToolCallStatus) {
		sum := sha256.Sum256([]byte(written))
		s.Streams.Stdout = v1alpha1.StreamStatus{Bytes: int64(len(written)), SHA256: hex.EncodeToString(sum[:]), Truncated: true}
	}
}

func TestTruncatedOutputComesFromTheLog(t *testing.T) {
	t.Parallel()
	written := strings.Repeat("0123456789\n", 1000) + "\xff\x00end"
	for name, c := range map[string]struct {
		log, want, notice string
	}{
		"the whole log":           {written + "\n", written, ""},
		"a log that was cut":      {written[50:], "0123[...]end", "has 10955 of 11005 bytes"},
		"a log of something else": {strings.Repeat("x", len(written)), "0123[...]end", "is not what the command wrote"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			pod := f.kubelet(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, c.log) })
			call, s := f.create(), newRecorder()
			f.finish(call, "0123[...]end", "", cut(written), func(s *v1alpha1.ToolCallStatus) { s.Pod = pod })
			must(t, result(t, f.wait(t.Context(), f.clients(), call, s.watcher())).err)
			out, _ := s.text()
			if out != c.want || !strings.Contains(strings.Join(s.notices, "\n"), c.notice) || (c.notice == "") != (len(s.notices) == 0) {
				t.Errorf("got %d bytes, notices %q", len(out), s.notices)
			}
		})
	}
}

// A result can exist before the kubelet reports that the pod has started.
func TestTruncatedOutputWaitsForTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	written, tries := strings.Repeat("0123456789\n", 1000), 0
	pod := f.kubelet(func(rw http.ResponseWriter, _ *http.Request) {
		switch tries++; tries {
		case 1, 2:
			http.Error(rw, "container is waiting to start: ContainerCreating", http.StatusBadRequest)
		case 3:
			http.Error(rw, "the kubelet is starting", http.StatusServiceUnavailable)
		case 4:
			_, _ = io.WriteString(rw, written[:500])
		default:
			_, _ = io.WriteString(rw, written)
		}
	})
	call, s := f.create(), newRecorder()
	f.finish(call, "0123[...]", "", cut(written), func(s *v1alpha1.ToolCallStatus) { s.Pod = pod })
	must(t, result(t, f.wait(t.Context(), f.clients(), call, s.watcher())).err)
	if out, _ := s.text(); out != written || len(s.notices) > 0 {
		t.Errorf("got %d bytes, notices %q", len(out), s.notices)
	}
}

// A short command exits before the kubelet reports that its pod has started: if the status has the whole output, Wait
// doesn't wait for the log.
func TestWholeOutputNeedsNoLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	asked := make(chan struct{}, 1)
	pod := f.kubelet(func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "container is waiting to start: ContainerCreating", http.StatusBadRequest)
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	done := f.wait(t.Context(), f.clients(), call, s.watcher())
	until(t, "read of the log", asked)
	f.finish(call, "out\n", "err\n")
	must(t, result(t, done).err)
	if out, errs := s.text(); out != "out\n" || errs != "err\n" || len(s.notices) > 0 {
		t.Errorf("got %q, %q, notices %q", out, errs, s.notices)
	}
}

func TestOutputWithoutPermissionToReadLogs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	pod := f.kubelet(func(http.ResponseWriter, *http.Request) { t.Error("the log was read") })
	config := rest.CopyConfig(f.config)
	config.Impersonate.UserName = "nobody"
	call, s := f.create(), newRecorder()
	f.start(call, pod)
	noticed := make(chan struct{}, 1)
	watcher := s.watcher()
	notice := watcher.Notice
	watcher.Notice = func(text string) { notice(text); noticed <- struct{}{} }
	done := f.wait(t.Context(), follow.Clients{Calls: f.calls, Pods: corev1client.NewForConfigOrDie(config)}, call, watcher)
	until(t, "notice", noticed)
	f.finish(call, "out\n", "")
	must(t, result(t, done).err)
	if out, _ := s.text(); out != "out\n" || len(s.notices) != 1 || !strings.Contains(s.notices[0], "pods/log") {
		t.Errorf("got %q, notices %q", out, s.notices)
	}
}
