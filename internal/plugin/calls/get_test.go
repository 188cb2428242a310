package calls

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/plugin/cli"
	"toolcall.dev/operator/internal/testing/plugintest"
)

// endings has calls with different ends in the namespace.
func endings(f *plugintest.Fixture) {
	f.T.Helper()
	for _, name := range []string{"good", "killed", "odd"} {
		f.Detached(name)
	}
	good := plugintest.Succeeded()
	good.Environment, good.Action = &v1alpha1.ResolvedEnvironment{Name: "tools"}, &v1alpha1.MappedAction{Type: v1alpha1.ActionStructured, Tool: "git", Summary: "git status"}
	good.Pod, good.Node = "good-abc", "node-1"
	f.End("good", good)
	f.End("killed", v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseFailed, Reason: "Signaled", DurationMilliseconds: ptr.To(int64(125_400)),
		Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "a\tb\x1b[0m"},
	})
}

// The table is the API server's; nothing shows as a dash, a call that nobody has seen yet as Pending.
func TestTableOfCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	endings(f)
	got := plugintest.Rows(f.Run("get").Out)
	for name, want := range map[string]string{
		"NAME":   "NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION AGE",
		"good":   "good Succeeded Completed 0 tools git status 7ms ",
		"killed": "killed Failed Signaled - - a b^[[0m 2m5s ",
		"odd":    "odd Pending - - - - - ",
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("the row of %s is %q, not %q", name, got[name], want)
		}
	}
	wide := plugintest.Rows(f.Run("get", "-o", "wide", "-A", "-l", "none!=x", "--requested-by", "admin").Out)
	if want := "NAMESPACE NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION AGE REQUESTED-BY SESSION STARTED CPU-MS MEMORY POD NODE"; wide["NAMESPACE"] != want {
		t.Errorf("the header is %q", wide["NAMESPACE"])
	}
	line := strings.Join(strings.Fields(f.Run("get", "good", "-o", "wide").Out), " ")
	if !strings.HasSuffix(line, " admin - - - - good-abc node-1") {
		t.Errorf("the wide row is %q", line)
	}
}

// The API server selects, and --limit keeps the newest.
func TestGetSelectsOnTheServer(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	endings(f)
	f.Session("dev")
	f.Run("run", "--detach", "--session", "dev", "--name", "inside", "--", "ls").Expect(t, 0)
	var mu sync.Mutex
	var asked []string
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		asked = append(asked, r.URL.Query().Get("fieldSelector")+" "+r.Header.Get("Accept"))
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	for line, want := range map[string]string{
		"get --phase Failed":                     "status.phase!=Pending,status.phase!=Running,status.phase!=Succeeded,status.phase!=Denied,status.phase!=Cancelled,status.phase!= " + acceptTable,
		"get --requested-by admin --session dev": "spec.sessionRef.name=dev,spec.requestedBy.username=admin " + acceptTable,
	} {
		asked = nil
		if _, errs, code := plugintest.Run("", append([]string{"--kubeconfig", config, "-n", f.Namespace}, strings.Fields(line)...)...); code != 0 || !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: exit code %d, %s, asked %q", line, code, errs, asked)
		}
	}
	// Of calls that are named, nothing else is read, in any format.
	for _, format := range []string{"-o=name", "-o=wide"} {
		asked = nil
		_, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "get", "inside", "--session", "dev", format)
		if code != 0 || len(asked) != 1 || !strings.HasPrefix(asked[0], "metadata.name=inside,spec.sessionRef.name=dev ") {
			t.Errorf("%s: exit code %d, %s, asked %q", format, code, errs, asked)
		}
	}
	f.Run("get", "--requested-by", "nobody").Expect(t, 0, "No calls found in namespace")
	f.Run("get", "--session", "dev", "-o", "name").Expect(t, 0, "toolcall.toolcall.dev/inside")
	if got := f.Run("get", "--since", "1h", "--limit", "2", "-o", "name"); got.Code != 0 || strings.Count(got.Out, "\n") != 2 {
		t.Errorf("got %+v", got)
	}
	if got := f.Run("get", "--limit", "1"); got.Code != 0 || strings.Count(got.Out, "\n") != 2 {
		t.Errorf("got %+v", got)
	}
	f.Run("get", "--since", "1ns").Expect(t, 0, "No calls found")
	f.Run("get", "--limit", "0").Expect(t, 1, "--limit 0: must be at least 1")
	f.Run("get", "").Expect(t, 1, "a name is empty")
	f.Run("get", "--session", "").Expect(t, 1, "--session: give a name, or leave the flag out")
	f.Run("run", "--session", "", "--", "true").Expect(t, 125, "--session: give a name, or leave the flag out")
	f.Run("get", "--since", "-1m").Expect(t, 1, "--since -1m0s: must not be negative")
	f.Run("get", "a", "b", "--watch").Expect(t, 1, "--watch can be used with one name")
}

// A watch survives an API server that is away for a moment, or that forgot what happened, and says so.
func TestGetWatchesThroughInterruptions(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("first")
	var mu sync.Mutex
	watches := 0
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "" {
			mu.Lock()
			watches++
			n := watches
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			switch n {
			case 1:
				w.WriteHeader(http.StatusBadGateway)
				_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 502, "message": "it is away"}`))
				return
			case 2:
				_, _ = w.Write([]byte(`{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}}`))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &plugintest.LockedBuffer{}
	root := cli.NewRoot(plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}))
	root.SetArgs([]string{"--kubeconfig", config, "-n", f.Namespace, "get", "--watch"})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = root.ExecuteContext(ctx)
	}()
	f.Eventually("a note about the outage", func() bool { return strings.Contains(out.String(), "note: the watch failed, retrying: ") })
	f.Eventually("a note about the gap", func() bool { return strings.Contains(out.String(), "note: the watch was too far behind") })
	f.Detached("second")
	f.Eventually("the second call", func() bool { return strings.Contains(out.String(), "second") })
	stop()
	<-ended
}

// A watch of one call begins now, however long ago the call changed: the API server may have forgotten what happened since.
func TestGetWatchesOneCallFromNow(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("old")
	f.Detached("new")
	from := make(chan string, 1)
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if query := r.URL.Query(); query.Has("watch") {
			from <- query.Get("resourceVersion")
			http.Error(w, "it ends here", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.CommandAt(config, "-n", f.Namespace, "get", "old", "--watch")
	if code != 1 || !strings.Contains(out, "old") || !strings.Contains(errs, "it ends here") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if got := <-from; got == "" || got == f.Call("old").ResourceVersion {
		t.Errorf("the watch begins at the version %q", got)
	}
	f.Run("get", "no-such", "--watch").Expect(t, 1, "call no-such not found")
}

// A list that took so long that the API server doesn't have it any more is read again.
func TestGetReadsAListAgainThatExpired(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"a", "b", "c"} {
		f.Detached(name)
	}
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		query := r.URL.Query()
		if query.Has("continue") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGone)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}`))
			return
		}
		if query.Has("limit") {
			query.Set("limit", "2")
		}
		r.URL.RawQuery = query.Encode()
		next.ServeHTTP(w, r)
	})
	out, errs, code := plugintest.CommandAt(config, "-n", f.Namespace, "get", "-o", "name")
	if code != 0 || errs != "" || strings.Count(out, "\n") != 3 {
		t.Errorf("exit code %d, %s: %s", code, errs, out)
	}
}

// A list comes in pages.
func TestGetReadsPages(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.Detached(name)
	}
	var mu sync.Mutex
	requests := 0
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		query := r.URL.Query()
		mu.Lock()
		requests++
		mu.Unlock()
		query.Set("limit", "2")
		r.URL.RawQuery = query.Encode()
		next.ServeHTTP(w, r)
	})
	for format, lines := range map[string]int{"": 6, "-o=name": 5} {
		requests = 0
		out, errs, code := plugintest.CommandAt(config, append([]string{"-n", f.Namespace, "get"}, strings.Fields(format)...)...)
		if code != 0 || errs != "" || strings.Count(out, "\n") != lines || requests != 3 {
			t.Errorf("%q: exit code %d, %d requests\n%s%s", format, code, requests, out, errs)
		}
	}
}

// A watch shows each change with a line, survives the end of its connection, and shows no other calls than the flags select.
func TestGetWatches(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("first")
	var mu sync.Mutex
	watches, cut := 0, func() {}
	config := f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Get("watch") != "" {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			mu.Lock()
			watches, cut = watches+1, cancel
			mu.Unlock()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return watches
	}
	for _, format := range []string{"", "-o=name"} {
		ctx, stop := context.WithCancel(t.Context())
		out := &plugintest.LockedBuffer{}
		c := plugintest.TestCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out})
		root := cli.NewRoot(c)
		root.SetArgs(append([]string{"--kubeconfig", config, "-n", f.Namespace, "get", "--watch", "-l", "skip!=yes"}, strings.Fields(format)...))
		ended := make(chan struct{})
		before := count()
		go func() {
			defer close(ended)
			_ = root.ExecuteContext(ctx)
		}()
		f.Eventually("a watch", func() bool { return count() > before })
		f.Run("run", "--detach", "--name", "second"+strings.TrimPrefix(format, "-o="), "--", "ls").Expect(t, 0)
		f.Run("run", "--detach", "-l", "skip=yes", "--name", "other"+strings.TrimPrefix(format, "-o="), "--", "ls").Expect(t, 0)
		f.Eventually("the second call", func() bool { return strings.Contains(out.String(), "second") })
		mu.Lock()
		cut()
		mu.Unlock()
		f.Eventually("a second watch", func() bool { return count() > before+1 })
		f.Run("run", "--detach", "--name", "third"+strings.TrimPrefix(format, "-o="), "--", "ls").Expect(t, 0)
		f.Eventually("the third call", func() bool { return strings.Contains(out.String(), "third") })
		stop()
		<-ended
		if text := out.String(); !strings.Contains(text, "first") || strings.Contains(text, "other") || strings.Count(text, "NAME ") > 1 {
			t.Errorf("%s: got\n%s", format, text)
		}
	}
}

// The newest call comes first; names, phases and labels select.
func TestGetSelectsCalls(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	for _, name := range []string{"a", "b", "c"} {
		f.Run("run", "--detach", "--name", name, "-l", "name="+name, "--", "ls").Expect(t, 0)
	}
	f.End("a", plugintest.Succeeded())
	f.End("b", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: "CancelRequested"})
	names := func(args ...string) string {
		got := f.Run(append([]string{"get", "-o", "name"}, args...)...)
		if got.Code != 0 || got.Err != "" {
			t.Errorf("%q: %+v", args, got)
		}
		return strings.ReplaceAll(strings.Join(strings.Fields(got.Out), " "), "toolcall.toolcall.dev/", "")
	}
	for line, want := range map[string]string{
		"":                          "a b c",
		"--phase succeeded":         "a",
		"--phase Succeeded,PENDING": "a c",
		"--phase Cancelled":         "b",
		"--phase Running":           "",
		"-l name=b":                 "b",
		"-l name!=b":                "a c",
		"b a":                       "a b",
		"b a --phase Succeeded":     "a",
	} {
		got := strings.Fields(names(strings.Fields(line)...))
		if sorted := plugintest.SortedFields(strings.Join(got, " ")); sorted != want {
			t.Errorf("get %s: %q, want %q", line, sorted, want)
		}
	}
	f.Run("get", "--phase", "Running").Expect(t, 0, "No calls found in namespace "+f.Namespace+".")
	f.Run("get", "a", "--phase", "Running").Expect(t, 0, "No calls found in namespace "+f.Namespace+".")
	f.Run("get", "a", "aa", "--phase", "Succeeded").Expect(t, 1, "a Succeeded", "call aa not found in namespace")
	f.Run("get", "aa", "a", "-o", "jsonpath={.items[*].metadata.name}").Expect(t, 1, "a", "call aa not found in namespace")
	f.Run("get", "--phase", "Running", "-o", "jsonpath={.items}").Expect(t, 0, "[]")
	f.Run("get", "--phase", "").Expect(t, 1, "--phase: give a phase")
	f.Run("get", "-A", "-l", "name=none").Expect(t, 0, "No calls found.")
	f.Eventually("a new second, which is what a time of creation says", func() bool {
		return time.Now().Unix() > f.Call("c").CreationTimestamp.Unix()
	})
	f.Detached("newest")
	if got := names("a", "newest", "c", "--limit", "1"); got != "newest" {
		t.Errorf("of three names, --limit 1 shows %q", got)
	}
}

func TestGetPrintsObjects(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("a")
	f.Detached("b")
	for line, kind := range map[string]string{"get a -o yaml": "ToolCall", "get a -o json": "ToolCall", "get -o yaml": "ToolCallList", "get a b -o json": "ToolCallList"} {
		got := f.Run(strings.Fields(line)...)
		var object struct {
			APIVersion, Kind string
			Items            []struct{ APIVersion, Kind string }
		}
		if err := yaml.Unmarshal([]byte(got.Out), &object); err != nil || got.Code != 0 || object.Kind != kind || object.APIVersion != "toolcall.dev/v1alpha1" {
			t.Errorf("%s: %v, %+v\n%s", line, err, object, got.Err)
		}
		for _, item := range object.Items {
			if item.Kind != "ToolCall" {
				t.Errorf("%s has an item of kind %q", line, item.Kind)
			}
		}
	}
	f.Run("get", "a", "-o", "toml").Expect(t, 1, "unable to match a printer")
	f.Run("get", "-o", "custom-columns=NAME:.metadata.name").Expect(t, 1, "unable to match a printer")
}

// An error that isn't about one name ends the reading: each of the next would be another try, and another line.
func TestGetOfSeveralEndsAtAnErrorOfTheAPIServer(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	f.Detached("a")
	config, failed := f.Failing("no store", "b", "c")
	out, errs, code := plugintest.Run("", "--kubeconfig", config, "-n", f.Namespace, "get", "none", "a", "b", "c", "-o", "name")
	if code != 1 || out != "toolcall.toolcall.dev/a\n" || !strings.Contains(errs, "call none not found") ||
		strings.Count(errs, "no store") != 1 || failed.Load() != 1 {
		t.Errorf("exit code %d, %q, %q, %d requests that failed", code, out, errs, failed.Load())
	}
}
