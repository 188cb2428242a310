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
)

const (
	// maxEnvironments bounds the list.
	maxEnvironments = 200
	// environmentsPage, maxLists and maxListsPerTenant bound the environments that are in memory as a whole: each can have more than
	// 1 MiB.
	environmentsPage  = 5
	maxLists          = 4
	maxListsPerTenant = 2
	// listTimeout bounds the time of a list, and of waiting for a place.
	listTimeout = 20 * time.Second
	// maxReadiness bounds the message of an environment that is not ready, in bytes.
	maxReadiness = 1 << 10
)

// environment is one entry of the list.
type environment struct {
	Name       string   `json:"name" jsonschema:"name to pass as the argument environment of the other tools"`
	Default    bool     `json:"default" jsonschema:"true for the environment of calls that name none"`
	Ready      bool     `json:"ready" jsonschema:"false if calls can't use it"`
	Message    string   `json:"message,omitempty" jsonschema:"why it is not ready"`
	Image      string   `json:"image" jsonschema:"container image"`
	WorkingDir string   `json:"working_dir,omitempty" jsonschema:"directory that calls start in; the image's working directory if absent"`
	Languages  []string `json:"languages,omitempty" jsonschema:"languages with an interpreter of this environment, besides the built-in ones"`
	Keeps      []string `json:"keeps,omitempty" jsonschema:"directories whose files last after a call; all others are gone after a call without session"`
}

var listEnvironmentsTool = tool{
	name: "list_environments", title: "List environments", output: answerSchema("environments", "more"), hints: readOnly(),
	description: func(*facts) string {
		return "Lists the environments that calls and sessions can run in: the default one, their images and languages, and the " +
			"directories whose files last after a call. Pass a name as the argument environment of other tools."
	},
}

// listEnvironments lists the environments of the namespace.
func (s *Server) listEnvironments(ctx context.Context, _ *mcp.CallToolRequest, who *identity.Requester, _ struct{}) (*Result, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, more, err := s.environmentsOf(ctx, who)
	if err != nil {
		return nil, notCreated(fmt.Errorf("list the environments: %w", err))
	}
	r := &Result{Reason: v1alpha1.ReasonCompleted, Environments: found, More: more, succeeded: true}
	r.Output = describeAll(r.Environments, r.More, who.Namespace)
	return r, nil
}

// environmentsOf describes the environments of the requester's namespace, page by page, and says whether there are more.
func (s *Server) environmentsOf(ctx context.Context, who *identity.Requester) (described []environment, more bool, err error) {
	release, err := s.lists.Acquire(ctx, who.Tenant, 1)
	if err != nil {
		return nil, false, fmt.Errorf("wait for other lists: %w", err)
	}
	defer release()
	described = []environment{}
	for next := ""; len(described) < maxEnvironments; {
		page := &v1alpha1.ExecutionEnvironmentList{}
		limit := min(environmentsPage, maxEnvironments-len(described))
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

func describe(e *v1alpha1.ExecutionEnvironment) environment {
	d := environment{
		Name: e.Name, Default: e.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true",
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

// describeAll is the list as text for a model.
func describeAll(environments []environment, more bool, namespace string) string {
	if len(environments) == 0 {
		return fmt.Sprintf("There are no environments in namespace %s: calls can't run there until an administrator creates one.", namespace)
	}
	var b strings.Builder
	for i := range environments {
		environments[i].write(&b)
	}
	if more {
		fmt.Fprintf(&b, "Only the first %d environments are listed.\n", maxEnvironments)
	}
	return b.String()
}

func (e *environment) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: image %s", e.Name, e.Image)
	if e.WorkingDir != "" {
		fmt.Fprintf(b, ", starts in %s", e.WorkingDir)
	}
	if len(e.Languages) > 0 {
		fmt.Fprintf(b, ", additional languages %s", strings.Join(e.Languages, ", "))
	}
	if len(e.Keeps) > 0 {
		fmt.Fprintf(b, ", files below %s last", strings.Join(e.Keeps, ", "))
	}
	if e.Default {
		b.WriteString(", the default")
	}
	if !e.Ready {
		fmt.Fprintf(b, ", not ready: %s", e.Message)
	}
	b.WriteString("\n")
}
