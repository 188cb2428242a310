package tasks

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"toolcall.dev/operator/api/v1alpha1"
)

func newCall() *v1alpha1.ToolCall {
	return &v1alpha1.ToolCall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mcp-a.b", UID: "6f9c3c5e-0f2c-4a53-9d55-0d2f8f0d9a0e"}}
}

// newID is an id of a call that nobody can guess.
func newID(call *v1alpha1.ToolCall) id { return (&offer{secret: newSecret()}).idOf(call) }

// An id leads to its call, and to no other.
func TestIDs(t *testing.T) {
	t.Parallel()
	call := newCall()
	made := newID(call)
	read, ok := parseID(made.String())
	if !ok || read != made {
		t.Fatalf("%q is read as %+v, want %+v", made, read, made)
	}
	if read.isOf(call) {
		t.Error("an id that wasn't added is one of the call's")
	}
	made.addTo(call)
	if !read.isOf(call) {
		t.Error("the call's own id is none of it")
	}
	if strings.Contains(call.Annotations[v1alpha1.AnnotationTask], made.secret) {
		t.Error("the call tells the id's secret")
	}
	for name, other := range map[string]id{
		"another secret":   {made.key, made.uid, newID(call).secret},
		"another UID":      {made.key, types.UID("another"), made.secret},
		"no secret":        {made.key, made.uid, ""},
		"the hash instead": {made.key, made.uid, made.hash()},
	} {
		if other.isOf(call) {
			t.Errorf("%s is an id of the call", name)
		}
	}
}

// A call has a bounded number of ids, of which the oldest give way.
func TestOldIDsGiveWay(t *testing.T) {
	t.Parallel()
	call := newCall()
	ids := make([]id, maxHashes+1)
	for n := range ids {
		ids[n] = newID(call)
		ids[n].addTo(call)
	}
	for n := range ids {
		if got, want := ids[n].isOf(call), n > 0; got != want {
			t.Errorf("id %d of %d is the call's: %t, want %t", n, len(ids), got, want)
		}
	}
}

func TestHostileIDsAreRejected(t *testing.T) {
	t.Parallel()
	good := newID(newCall()).String()
	for _, text := range []string{
		"", ".", "...", "a.b.c", "a.b.c.d", strings.TrimSuffix(good, "mcp-a.b"), strings.Replace(good, ".mcp", "=.mcp", 1), good + strings.Repeat("a", maxID),
		strings.Replace(good, "team.", "", 1),
		strings.Replace(good, "mcp-a.b", "a/b", 1), strings.Replace(good, "mcp-a.b", "..", 1), "\x00" + strings.Repeat(".", 600),
	} {
		if i, ok := parseID(text); ok {
			t.Errorf("%q is read as %+v", text, i)
		}
	}
}
