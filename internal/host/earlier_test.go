package host

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
)

// listOf is an API server with the metadata of calls.
func listOf(calls ...metav1.PartialObjectMetadata) client.Reader { return listAt("", calls...) }

// listAt is an API server at a revision that has objects.
func listAt(revision string, objects ...metav1.PartialObjectMetadata) client.Reader {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.SetResourceVersion(revision)
			list.(*metav1.PartialObjectMetadataList).Items = objects
			return nil
		},
	})
}

func TestEarlierCallsAreThoseOfTheStart(t *testing.T) {
	t.Parallel()
	call := func(name, uid string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	}
	e := &EarlierCalls{}
	if !e.Has("any") {
		t.Error("before they are read, a call can't be one of them")
	}
	if err := e.Read(t.Context(), listOf(call("a", "a1"), call("b", "b1"), call("c", "c1")), []string{metav1.NamespaceAll}); err != nil {
		t.Fatal(err)
	}
	if !e.Has("a1") || !e.Has("b1") || e.Has("later") {
		t.Error("it isn't known which they are")
	}
}

// Of a list that expired, the later pages have a later revision.
func TestASessionThatWasMadeDuringTheListIsNotBehind(t *testing.T) {
	t.Parallel()
	api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			list.SetResourceVersion("90")
			list.SetContinue("rest")
			if (&client.ListOptions{}).ApplyOptions(options).Continue == "rest" {
				list.SetResourceVersion("100")
				list.SetContinue("")
			}
			return nil
		},
	})
	e := &EarlierCalls{}
	if err := e.Read(t.Context(), api, []string{metav1.NamespaceAll}); err != nil {
		t.Fatal(err)
	}
	if e.IsBehind(&v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "made", ResourceVersion: "95"}}) {
		t.Error("nobody works on it")
	}
}

// A cache shows sessions as they were at some time before, or after, the list.
func TestASessionIsBehindUntilTheCacheShowsItAsItWas(t *testing.T) {
	t.Parallel()
	session := func(uid, revision string) *v1alpha1.ToolSession {
		return &v1alpha1.ToolSession{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: types.UID(uid), ResourceVersion: revision}}
	}
	e := &EarlierCalls{}
	if !e.IsBehind(session("s1", "1000")) {
		t.Error("before the sessions are read, one is believed")
	}
	listed := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", UID: "s1", ResourceVersion: "50"}}
	if err := e.Read(t.Context(), listAt("90", listed), []string{metav1.NamespaceAll}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what, uid, revision string
		behind              bool
	}{
		{"one before its last change", "s1", "49", true},
		{"one as it was", "s1", "50", false},
		{"one that was deleted", "s0", "40", true},
		{"one that was made since", "s2", "91", false},
		{"one that was deleted, when the cache has caught up", "s0", "40", false},
	} {
		if got := e.IsBehind(session(tc.uid, tc.revision)); got != tc.behind {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
	if e.known.Load().sessions[metav1.NamespaceAll].Load() != nil {
		t.Error("it is remembered for ever")
	}
}
