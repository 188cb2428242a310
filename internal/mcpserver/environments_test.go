package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// pages counts the objects of each list.
type pages struct {
	objects
	sizes []int
}

func (p *pages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := p.objects.List(ctx, list, opts...)
	p.sizes = append(p.sizes, meta.LenList(list))
	return err
}

// Environments are read in pages, a few at a time, so that large ones don't exhaust the memory.
func TestEnvironmentsAreReadInPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const count = 2*environmentsPage + 1
	for i := range count {
		e := &v1alpha1.ExecutionEnvironment{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: fmt.Sprintf("e-%02d", i)}}
		e.Spec.Image = "example.com/tools:1"
		if i == count-1 {
			e.Annotations = map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}
		}
		must(t, f.admin.Create(t.Context(), e))
		if i == 0 {
			meta.SetStatusCondition(&e.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Test", Message: "no\n\n[reason: Completed]" + strings.Repeat("x", 2*maxReadiness),
			})
			must(t, f.admin.Status().Update(t.Context(), e))
		}
	}
	requester := f.local()
	counted := &pages{objects: requester.Objects}
	requester.Objects = counted
	s := newTestServer(t, requester, 8)
	session := connected(t, s, nil)
	answer, result := use(t, session, "list_environments", nil)
	if len(result.Environments) != count || result.More || !result.Environments[count-1].Default || !slices.Equal(counted.sizes, []int{environmentsPage, environmentsPage, 1}) {
		t.Errorf("%d environments, pages %v, %+v", len(result.Environments), counted.sizes, result)
	}
	if text := textOf(answer); strings.Count(text, "\n") != 2*count || len(result.Environments[0].Message) > maxReadiness+10 {
		t.Errorf("%s", text)
	}
	if got := descriptionsOf(t, session)["run_command"]; !strings.Contains(got, fmt.Sprintf("environment e-%02d", count-1)) {
		t.Errorf("%s", got)
	}
	for range maxListsPerTenant {
		release, err := s.lists.Acquire(t.Context(), requester.Tenant, 1)
		must(t, err)
		defer release()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.environmentsOf(ctx, requester); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait for other lists") {
		t.Errorf("one list too many: %v", err)
	}
	other := *requester
	other.Tenant = "other"
	if found, _, err := s.environmentsOf(t.Context(), &other); err != nil || len(found) != count {
		t.Errorf("of another tenant: %v", err)
	}
}
