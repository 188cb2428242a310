package follow

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server hands out one prepared watch after the other, and keeps from where each was asked for.
type server struct {
	client.WithWatch
	watches  []*watch.FakeWatcher
	versions []string
}

func (s *server) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.SetResourceVersion("10")
	return nil
}

func (s *server) Watch(_ context.Context, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	s.versions = append(s.versions, o.Raw.ResourceVersion)
	next := s.watches[0]
	s.watches = s.watches[1:]
	return next, nil
}

func pod(version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p" + version, ResourceVersion: version}}
}

func TestAWatchThatIsCutOffGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := watch.NewFakeWithChanSize(3, false), watch.NewFakeWithChanSize(3, false)
		first.Add(pod("11"))
		first.Action(watch.Bookmark, pod("15"))
		first.Stop()
		second.Modify(pod("16"))
		second.Error(&metav1.Status{Reason: metav1.StatusReasonExpired, Code: 410})
		s := &server{watches: []*watch.FakeWatcher{first, second}}
		var seen []string
		f, err := Start(t.Context(), s, &corev1.PodList{}, "n", func(e watch.Event) {
			seen = append(seen, string(e.Type)+" "+e.Object.(*corev1.Pod).Name)
		})
		if err != nil {
			t.Fatal(err)
		}
		<-f.Done()
		if diff := cmp.Diff([]string{"ADDED p11", "MODIFIED p16"}, seen); diff != "" || !slices.Equal(s.versions, []string{"10", "15"}) {
			t.Errorf("asked for from %v: %s", s.versions, diff)
		}
		if err := f.Stop(); !apierrors.IsResourceExpired(err) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestStoppingIsNoError(t *testing.T) {
	t.Parallel()
	f, err := Start(t.Context(), &server{watches: []*watch.FakeWatcher{watch.NewFake()}}, &corev1.PodList{}, "n", func(watch.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}
