package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/mcpserver/identity"
	"toolcall.dev/operator/internal/mcpserver/reply"
)

const (
	// environmentsPage, maxLists and maxListsPerTenant bound the environments that are in memory as a whole: each can have more than
	// 1 MiB.
	environmentsPage  = 5
	maxLists          = 4
	maxListsPerTenant = 2
	// listTimeout bounds the time of a list, and of waiting for a place.
	listTimeout = 20 * time.Second
	// maxReadiness bounds the message of an environment that is not ready, in bytes.
	maxReadiness = 256
)

// listEnvironments lists the environments of the namespace.
func (s *Server) listEnvironments(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, _ struct{}) (*reply.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, more, err := s.environmentsOf(ctx, who)
	if err != nil {
		return nil, notCreated(fmt.Errorf("list the environments: %w", err))
	}
	allowed := map[string]*reply.Allowed{"": nil}
	for i := range found {
		name := found[i].Policy
		if _, known := allowed[name]; !known {
			allowed[name] = allowedBy(ctx, who, name)
		}
		found[i].Allowed = allowed[name]
	}
	text, listed := reply.List(found, more, who.Namespace, reply.Room(s.options.MaxAnswer))
	return &reply.Result{
		Reason: v1alpha1.ReasonCompleted, Output: text, Environments: found[:listed], More: more || listed < len(found), Succeeded: true,
	}, nil
}

// environmentsOf describes the environments of the requester's namespace, page by page, and says whether there are more.
func (s *Server) environmentsOf(ctx context.Context, who *identity.Requester) (described []reply.Environment, more bool, err error) {
	release, err := s.lists.Acquire(ctx, who.Tenant, 1)
	if err != nil {
		return nil, false, fmt.Errorf("wait for other lists: %w", err)
	}
	defer release()
	described = []reply.Environment{}
	for next := ""; len(described) < reply.MaxEnvironments; {
		page := &v1alpha1.ExecutionEnvironmentList{}
		limit := min(environmentsPage, reply.MaxEnvironments-len(described))
		if err := who.Objects.List(ctx, page, client.InNamespace(who.Namespace), client.Limit(int64(limit)), client.Continue(next)); err != nil {
			return nil, false, err
		}
		for i := range page.Items {
			described = append(described, describe(&page.Items[i]))
		}
		if next = page.Continue; next == "" {
			return described, false, nil
		}
	}
	return described, true, nil
}

// allowedBy says what a policy lets calls do, nil if the requester may not read it.
func allowedBy(ctx context.Context, who *identity.Requester, name string) *reply.Allowed {
	policy := &v1alpha1.ExecutionPolicy{}
	if who.Objects.Get(ctx, client.ObjectKey{Name: name}, policy) != nil {
		return nil
	}
	return reply.AllowedBy(&policy.Spec)
}

func describe(e *v1alpha1.ExecutionEnvironment) reply.Environment {
	d := reply.Environment{
		Name: e.Name, Policy: e.Spec.PolicyName(), Default: e.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true",
		Image: e.Spec.Image, WorkingDir: e.Spec.WorkingDir, Keeps: lastingDirectories(&e.Spec), Message: "the operator has not checked it yet",
	}
	for language := range e.Spec.Interpreters {
		d.Languages = append(d.Languages, language)
	}
	slices.Sort(d.Languages)
	if ready := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		// On one line, it can't be taken for another line of the answer.
		d.Ready, d.Message = ready.Status == metav1.ConditionTrue, bounds.Text(strings.Join(strings.Fields(ready.Message), " "), maxReadiness)
	}
	if d.Ready {
		d.Message = ""
	}
	if e.Spec.Suspend {
		d.Ready, d.Message = false, "suspended: calls wait until it is resumed"
	}
	return d
}
