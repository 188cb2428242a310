package plugin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

// endings has calls with different ends in the namespace.
func (f *fixture) endings() {
	f.t.Helper()
	for _, name := range []string{"good", "killed", "odd"} {
		f.detached(name)
	}
	good := succeeded()
	good.Environment, good.Action = &v1alpha1.ResolvedEnvironment{Name: "tools"}, &v1alpha1.MappedAction{Type: v1alpha1.ActionStructured, Tool: "git", Summary: "git status"}
	good.Pod, good.Node = "good-abc", "node-1"
	f.end("good", good)
	f.end("killed", v1alpha1.ToolCallStatus{
		Phase: v1alpha1.PhaseFailed, Reason: "Signaled", DurationMilliseconds: ptr.To(int64(125_400)),
		Action: &v1alpha1.MappedAction{Type: v1alpha1.ActionShell, Tool: "bash", Summary: "a\tb\x1b[0m"},
	})
}

// rows are the lines of a table, each with single spaces, without the age in the last column of a row.
func rows(out string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if cells := strings.Fields(line); len(cells) > 0 {
			all[cells[0]] = strings.Join(cells, " ")
		}
	}
	return all
}

// The table is the API server's; nothing shows as a dash, a call that nobody has seen yet as Pending.
func TestTableOfCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.endings()
	got := rows(f.run("get").out)
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
	wide := rows(f.run("get", "-o", "wide", "-A", "-l", "none!=x", "--requested-by", "admin").out)
	if want := "NAMESPACE NAME PHASE REASON EXIT ENVIRONMENT ACTION DURATION AGE REQUESTED-BY SESSION POD NODE"; wide["NAMESPACE"] != want {
		t.Errorf("the header is %q", wide["NAMESPACE"])
	}
	line := strings.Join(strings.Fields(f.run("get", "good", "-o", "wide").out), " ")
	if !strings.HasSuffix(line, " admin - good-abc node-1") {
		t.Errorf("the wide row is %q", line)
	}
}

// The API server selects, and --limit keeps the newest.
func TestGetSelectsOnTheServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.endings()
	f.session("dev")
	f.run("run", "--detach", "--session", "dev", "--name", "inside", "--", "ls").expect(t, 0)
	var mu sync.Mutex
	var asked []string
	config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
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
		if _, errs, code := command("", append([]string{"--kubeconfig", config, "-n", f.namespace}, strings.Fields(line)...)...); code != 0 || !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: exit code %d, %s, asked %q", line, code, errs, asked)
		}
	}
	// Of calls that are named, nothing else is read, in any format.
	for _, format := range []string{"-o=name", "-o=wide"} {
		asked = nil
		_, errs, code := command("", "--kubeconfig", config, "-n", f.namespace, "get", "inside", "--session", "dev", format)
		if code != 0 || len(asked) != 2 || !strings.HasPrefix(asked[1], "metadata.name=inside,spec.sessionRef.name=dev ") {
			t.Errorf("%s: exit code %d, %s, asked %q", format, code, errs, asked)
		}
	}
	f.run("get", "--requested-by", "nobody").expect(t, 0, "No calls found in namespace")
	f.run("get", "--session", "dev", "-o", "name").expect(t, 0, "toolcall.toolcall.dev/inside")
	if got := f.run("get", "--since", "1h", "--limit", "2", "-o", "name"); got.code != 0 || strings.Count(got.out, "\n") != 2 {
		t.Errorf("got %+v", got)
	}
	if got := f.run("get", "--limit", "1"); got.code != 0 || strings.Count(got.out, "\n") != 2 {
		t.Errorf("got %+v", got)
	}
	f.run("get", "--since", "1ns").expect(t, 0, "No calls found")
	f.run("get", "--limit", "0").expect(t, 1, "--limit 0: must be at least 1")
	f.run("get", "--since", "-1m").expect(t, 1, "--since -1m0s: must not be negative")
	f.run("get", "a", "b", "--watch").expect(t, 1, "--watch can be used with one name")
}

// A watch survives an API server that is away for a moment, or that forgot what happened, and says so.
func TestGetWatchesThroughInterruptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("first")
	var mu sync.Mutex
	watches := 0
	config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
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
	out := &lockedBuffer{}
	root := newRoot(newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}))
	root.SetArgs([]string{"--kubeconfig", config, "-n", f.namespace, "get", "--watch"})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = root.ExecuteContext(ctx)
	}()
	f.eventually("a note about the outage", func() bool { return strings.Contains(out.String(), "note: the watch failed, retrying: ") })
	f.eventually("a note about the gap", func() bool { return strings.Contains(out.String(), "note: the watch was too far behind") })
	f.detached("second")
	f.eventually("the second call", func() bool { return strings.Contains(out.String(), "second") })
	stop()
	<-ended
}

// A list comes in pages. When the API server forgot it before its end, it is read again, and nothing comes twice.
func TestGetReadsPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.detached(name)
	}
	for _, expires := range []bool{false, true} {
		var mu sync.Mutex
		requests := 0
		config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			query := r.URL.Query()
			mu.Lock()
			requests++
			mu.Unlock()
			if query.Get("limit") != "" {
				query.Set("limit", "2")
				r.URL.RawQuery = query.Encode()
			}
			if expires && query.Get("continue") != "" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGone)
				_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}`))
				return
			}
			next.ServeHTTP(w, r)
		})
		for _, format := range []string{"", "-o=name"} {
			requests = 0
			out, errs, code := commandAt(config, append([]string{"-n", f.namespace, "get"}, strings.Fields(format)...)...)
			lines := strings.Count(out, "\n")
			if format == "" {
				lines--
			}
			if code != 0 || errs != "" || lines != 5 || requests != 3 {
				t.Errorf("%q, expires: %t: exit code %d, %d requests\n%s%s", format, expires, code, requests, out, errs)
			}
		}
	}
}

// A watch shows each change with a line, survives the end of its connection, and shows no other calls than the flags select.
func TestGetWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("first")
	var mu sync.Mutex
	watches, cut := 0, func() {}
	config := f.proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
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
		out := &lockedBuffer{}
		c := newCLI(genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out})
		root := newRoot(c)
		root.SetArgs(append([]string{"--kubeconfig", config, "-n", f.namespace, "get", "--watch", "-l", "skip!=yes"}, strings.Fields(format)...))
		ended := make(chan struct{})
		before := count()
		go func() {
			defer close(ended)
			_ = root.ExecuteContext(ctx)
		}()
		f.eventually("a watch", func() bool { return count() > before })
		f.run("run", "--detach", "--name", "second"+strings.TrimPrefix(format, "-o="), "--", "ls").expect(t, 0)
		f.run("run", "--detach", "-l", "skip=yes", "--name", "other"+strings.TrimPrefix(format, "-o="), "--", "ls").expect(t, 0)
		f.eventually("the second call", func() bool { return strings.Contains(out.String(), "second") })
		mu.Lock()
		cut()
		mu.Unlock()
		f.eventually("a second watch", func() bool { return count() > before+1 })
		f.run("run", "--detach", "--name", "third"+strings.TrimPrefix(format, "-o="), "--", "ls").expect(t, 0)
		f.eventually("the third call", func() bool { return strings.Contains(out.String(), "third") })
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
	f := newFixture(t)
	for _, name := range []string{"a", "b", "c"} {
		f.run("run", "--detach", "--name", name, "-l", "name="+name, "--", "ls").expect(t, 0)
	}
	f.end("a", succeeded())
	f.end("b", v1alpha1.ToolCallStatus{Phase: v1alpha1.PhaseCancelled, Reason: "CancelRequested"})
	names := func(args ...string) string {
		got := f.run(append([]string{"get", "-o", "name"}, args...)...)
		if got.code != 0 || got.err != "" {
			t.Errorf("%q: %+v", args, got)
		}
		return strings.ReplaceAll(strings.Join(strings.Fields(got.out), " "), "toolcall.toolcall.dev/", "")
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
		if sorted := sortedFields(strings.Join(got, " ")); sorted != want {
			t.Errorf("get %s: %q, want %q", line, sorted, want)
		}
	}
	f.run("get", "--phase", "Running").expect(t, 0, "No calls found in namespace "+f.namespace+".")
	f.run("get", "-A", "-l", "name=none").expect(t, 0, "No calls found.")
}

func TestGetPrintsObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.detached("a")
	f.detached("b")
	for line, kind := range map[string]string{"get a -o yaml": "ToolCall", "get a -o json": "ToolCall", "get -o yaml": "ToolCallList", "get a b -o json": "ToolCallList"} {
		got := f.run(strings.Fields(line)...)
		var object struct {
			APIVersion, Kind string
			Items            []struct{ APIVersion, Kind string }
		}
		if err := yaml.Unmarshal([]byte(got.out), &object); err != nil || got.code != 0 || object.Kind != kind || object.APIVersion != "toolcall.dev/v1alpha1" {
			t.Errorf("%s: %v, %+v\n%s", line, err, object, got.err)
		}
		for _, item := range object.Items {
			if item.Kind != "ToolCall" {
				t.Errorf("%s has an item of kind %q", line, item.Kind)
			}
		}
	}
	f.run("get", "a", "-o", "toml").expect(t, 1, "unable to match a printer")
	f.run("get", "-o", "custom-columns=NAME:.metadata.name").expect(t, 1, "unable to match a printer")
}
