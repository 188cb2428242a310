package operator

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/controllers"
	"toolcall.dev/operator/internal/dispatch"
	"toolcall.dev/operator/internal/dispatch/dial"
	"toolcall.dev/operator/internal/dispatch/wire"
)

// nothing is a cluster without objects.
type nothing struct{}

// Get implements client.Reader.
func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List is not needed.
func (nothing) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed")
}

func TestTheListenerComparesHellosWithTheCluster(t *testing.T) {
	identity, err := dispatch.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	hub := dispatch.NewHub(func(*dispatch.Runner, dispatch.News) { t.Error("a session was made") })
	r := &replica{
		options: &Options{DispatchAddress: address}, identity: identity, memory: &controllers.Memory{Hub: hub},
		records: &dispatch.Records{Cached: nothing{}, Live: nothing{}}, log: logr.Discard(),
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	serving.Go(func() {
		if err := r.serveRunners(ctx); err != nil {
			t.Error(err)
		}
	})
	env := map[string]string{
		wire.EnvEndpoints: address, wire.EnvCA: identity.CA(), wire.EnvToken: identity.Token("ns", "job", "job-uid"),
		wire.EnvNamespace: "ns", wire.EnvCall: "call", wire.EnvJob: "job", wire.EnvJobUID: "job-uid",
		wire.EnvPod: "pod", wire.EnvPodUID: "pod-uid",
	}
	config, err := dial.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	conn, err := config.Dial(t.Context(), nil)
	for err != nil && t.Context().Err() == nil {
		conn, err = config.Dial(t.Context(), nil)
	}
	defer conn.Close()
	if m, err := conn.Receive(); err != nil || m.Refuse == nil || !strings.Contains(m.Refuse.Reason, "Job") {
		t.Errorf("got %+v, %v; want a refusal", m, err)
	}
}
