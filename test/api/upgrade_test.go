package api_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/access"
	"toolcall.dev/operator/internal/testing/apiservertest"
)

// newerAssets has the programs of a newer API server, to upgrade the one of the other tests to.
const newerAssets = "TOOLCALL_NEWER_ASSETS"

// upgraded are API servers of two versions, one after the other, over one etcd's data.
type upgraded struct {
	t      *testing.T
	data   string
	server *apiservertest.Server
}

// start runs an API server over what the one before left.
func (u *upgraded) start(assets string) (*space, error) {
	u.t.Helper()
	server, err := apiservertest.Start(apiservertest.Options{Assets: assets, EtcdData: u.data})
	if err != nil {
		return nil, err
	}
	u.server = server
	s, err := newAPIServer(server)
	return &space{apiServer: s, t: u.t, namespace: "upgraded"}, err
}

func (u *upgraded) stop() {
	if err := u.server.Stop(); err != nil {
		u.t.Error(err)
	}
}

// believed says whether the operator knows who created a call; nil when it does.
func (s *space) believed(name string) error {
	known, missing, err := (&access.Requesters{Reader: s.admin}).Vouched(s.t.Context(), s.get(name))
	if err == nil && !known {
		err = fmt.Errorf("nobody vouches for %s: %s", name, missing)
	}
	return err
}

// Before the release is installed again, the newer cluster is as safe as the older one was; afterwards it has a stamp. Calls of
// before are believed all the time.
func TestAClusterIsUpgradedWhileCallsExist(t *testing.T) {
	newer := os.Getenv(newerAssets)
	if newer == "" {
		t.Skip("needs a newer API server: set " + newerAssets)
	}
	u := &upgraded{t: t, data: t.TempDir()}
	s, err := u.start(apiservertest.Assets())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { u.stop() }()
	s.needsNoStamp()
	if err := s.setup(); err != nil {
		t.Fatal(err)
	}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	s.grant("alice", "toolcalls", "create", "get", "patch")
	n := 0
	// Policies count for calls of some seconds later.
	eventually(t, func() error {
		n++
		name := fmt.Sprint("before-", n)
		if err := s.as("alice", aliceIs).Create(t.Context(), newCall(s.namespace, name)); err != nil {
			return err
		}
		return s.believed(name)
	})
	before := fmt.Sprint("before-", n)
	u.stop()

	if s, err = u.start(newer); err != nil {
		t.Fatal(err)
	}
	if !s.stamps {
		t.Fatal("the newer API server has no MutatingAdmissionPolicy")
	}
	s.upgradedOnly(before)
	if err := s.setup(); err != nil {
		t.Fatal(err)
	}
	s.reinstalled(before)
}

// upgradedOnly checks a cluster that could stamp and doesn't.
func (s *space) upgradedOnly(before string) {
	s.t.Helper()
	raw := s.raw("alice", aliceIs)
	for name, by := range lies() {
		call := newCall(s.namespace, "lie")
		call.Spec.RequestedBy = by
		eventually(s.t, func() error {
			if err := raw.Create(s.t.Context(), call.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), askedFor) {
				return fmt.Errorf("by %s: %w", name, err)
			}
			return nil
		})
	}
	call := newCall(s.namespace, "between")
	call.Spec.RequestedBy = alice()
	if err := raw.Create(s.t.Context(), call); err != nil {
		s.t.Error(err)
	}
	for _, name := range []string{before, call.Name} {
		if err := s.believed(name); err != nil {
			s.t.Error(err)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"requestedBy":{"username":"mallory"}}}`))
		expectRefused(s.t, raw.Patch(s.t.Context(), s.get(name), patch), "requestedBy is immutable")
	}
}

// reinstalled checks the same cluster with the stamp.
func (s *space) reinstalled(before string) {
	s.t.Helper()
	raw := s.raw("alice", aliceIs)
	call := newCall(s.namespace, "after")
	call.Spec.RequestedBy = &v1alpha1.Requester{Username: "alice", Groups: []string{"system:masters"}}
	if err := raw.Create(s.t.Context(), call); err != nil || len(call.Spec.RequestedBy.Groups) != 3 {
		s.t.Errorf("%v: requestedBy is %+v", err, call.Spec.RequestedBy)
	}
	for _, name := range []string{before, "between", "after"} {
		if err := s.believed(name); err != nil {
			s.t.Error(err)
		}
	}
	cancel := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true}}`))
	if err := raw.Patch(s.t.Context(), s.get(before), cancel); err != nil {
		s.t.Errorf("a call of before can't be cancelled: %v", err)
	}
}
