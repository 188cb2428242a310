package subresources

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// One user gets a quarter of the places at most, before anything of a request is read. Other requests aren't counted.
func TestReviewsAtTheSameTimeAreBounded(t *testing.T) {
	t.Parallel()
	v := &reviews{slots: newSlots(t.Context(), "reviews", 8)}
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := v.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, _ := request.RequestInfoFrom(r.Context()); info.Resource == "toolcallreviews" {
			entered <- struct{}{}
			<-leave
		}
	}), serializer.NewCodecFactory(newScheme()))
	ask := func(who, resource string) int {
		ctx := request.WithUser(context.Background(), &user.DefaultInfo{Name: who})
		ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Resource: resource, Namespace: "ns", Verb: "create", IsResourceRequest: true})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(w, r.WithContext(ctx))
		return w.Code
	}
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() { ask("a", "toolcallreviews") })
		<-entered
	}
	if code := ask("a", "toolcallreviews"); code != http.StatusTooManyRequests {
		t.Errorf("a third review of the user: %d", code)
	}
	if code := ask("a", "toolcalls"); code != http.StatusOK {
		t.Errorf("another request of the user: %d", code)
	}
	asking.Go(func() { ask("b", "toolcallreviews") })
	<-entered
	close(leave)
	asking.Wait()
	asking.Go(func() { ask("a", "toolcallreviews") })
	<-entered
	asking.Wait()
}
