package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

func TestWhoAskedIsWhoTheRequestIsFrom(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("alice", "toolcalls", "create", "get", "patch")
	alice := s.as("alice", asUser{
		uid: "a-1", groups: []string{"readers"},
		extra: map[string][]string{"example.com/scopes": {"read", "write"}, "reason": {"test"}},
	})
	want := &v1alpha1.Requester{
		Username: "alice", UID: "a-1", Groups: []string{"readers", "system:authenticated"},
		Extra: map[string]v1alpha1.ExtraValue{"example.com/scopes": {"read", "write"}, "reason": {"test"}},
	}
	for name, written := range map[string]*v1alpha1.Requester{
		"nothing":    nil,
		"the truth":  want.DeepCopy(),
		"a group":    {Username: "alice", UID: "0", Groups: []string{"system:masters", "readers"}},
		"an extra":   {Username: "alice", Extra: map[string]v1alpha1.ExtraValue{"example.com/scopes": {"admin"}, "more": {"x"}}},
		"another":    {Username: "admin"},
		"empty ones": {Groups: []string{}, Extra: map[string]v1alpha1.ExtraValue{}},
	} {
		t.Run(name, func(t *testing.T) {
			create := map[string]func(*v1alpha1.ToolCall, ...client.CreateOption) error{
				"create": func(c *v1alpha1.ToolCall, o ...client.CreateOption) error { return alice.Create(t.Context(), c, o...) },
				"dry run": func(c *v1alpha1.ToolCall, o ...client.CreateOption) error {
					return alice.Create(t.Context(), c, append(o, client.DryRunAll)...)
				},
			}
			for how, create := range create {
				call := newCall(s.namespace, "")
				call.GenerateName, call.Spec.RequestedBy = "c-", written
				if err := create(call); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, call.Spec.RequestedBy); diff != "" {
					t.Errorf("%s: %s", how, diff)
				}
			}
		})
	}
}

// A call that is applied comes to be by a patch.
func TestWhoAppliesACallIsWhoAsked(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	s.grant("alice", "toolcalls", "create", "get", "patch")
	for _, written := range []any{nil, map[string]any{"username": "alice", "groups": []any{"system:masters"}}} {
		name := "plain"
		spec := map[string]any{"structured": map[string]any{"binary": "ls"}}
		if written != nil {
			name, spec["requestedBy"] = "claims", written
		}
		text := asYAML(t, map[string]any{
			"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCall", "spec": spec,
			"metadata": map[string]any{"name": name, "namespace": s.namespace},
		})
		if said, err := s.Kubectl(text, "--as=alice", "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatalf("apply: %s", said)
		}
		by := s.get(name).Spec.RequestedBy
		if by == nil || by.Username != "alice" || strings.Join(by.Groups, ",") != "system:authenticated" {
			t.Errorf("%s: requestedBy is %+v", name, by)
		}
		// Whoever applies the same again changes nothing.
		if said, err := s.Kubectl(text, "--as=alice", "apply", "--server-side", "-f", "-"); err != nil && written == nil {
			t.Errorf("apply again: %s", said)
		}
	}
}

func (s *space) get(name string) *v1alpha1.ToolCall {
	s.t.Helper()
	call := &v1alpha1.ToolCall{}
	if err := s.admin.Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, call); err != nil {
		s.t.Fatal(err)
	}
	return call
}

func TestARequesterThatDoesNotFitIsRefused(t *testing.T) {
	s := newSpace(t)
	s.grant("alice", "toolcalls", "create")
	many := map[string][]string{}
	for i := range 65 {
		many["k"+strings.Repeat("x", i)] = []string{"v"}
	}
	for name, tc := range map[string]struct {
		extra   map[string][]string
		refused string
	}{
		"64 values":     {map[string][]string{"k": repeated("v", 64)}, ""},
		"65 values":     {map[string][]string{"k": repeated("v", 65)}, "spec.requestedBy.extra.k"},
		"a long value":  {map[string][]string{"k": {strings.Repeat("v", 4097)}}, "spec.requestedBy.extra.k"},
		"65 attributes": {many, "spec.requestedBy.extra"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.as("alice", asUser{extra: tc.extra}).Create(t.Context(), newCall(s.namespace, "fits"), client.DryRunAll)
			expectRefused(t, err, tc.refused)
		})
	}
}

func TestTrustIsARight(t *testing.T) {
	s := newSpace(t)
	for _, who := range []string{"agent", "platform"} {
		s.grant(who, "toolcalls", "create")
	}
	s.grant("platform", "executionenvironments", "trust")
	trusted := func() *v1alpha1.ToolCall {
		call := newCall(s.namespace, "")
		call.GenerateName, call.Spec.Trusted = "trusted-", true
		return call
	}
	expectRefused(t, s.as("agent", asUser{}).Create(t.Context(), trusted()), `may "trust" executionenvironments`)
	expectRefused(t, s.as("platform", asUser{}).Create(t.Context(), trusted()), "")
	// The right is one in this namespace.
	elsewhere := newSpace(t)
	elsewhere.grant("platform", "toolcalls", "create")
	call := trusted()
	call.Namespace = elsewhere.namespace
	expectRefused(t, s.as("platform", asUser{}).Create(t.Context(), call), `may "trust" executionenvironments`)
}
