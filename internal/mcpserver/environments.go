package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxEnvironments bounds the list.
const maxEnvironments = 200

// environment is one entry of the list.
type environment struct {
	Name       string   `json:"name" jsonschema:"name to pass as the argument environment of the other tools"`
	Default    bool     `json:"default" jsonschema:"true for the environment of calls that name none"`
	Ready      bool     `json:"ready" jsonschema:"false if calls can't use it"`
	Message    string   `json:"message,omitempty" jsonschema:"why it is not ready"`
	Image      string   `json:"image" jsonschema:"container image"`
	WorkingDir string   `json:"workingDir,omitempty" jsonschema:"directory that calls start in; the image's working directory if absent"`
	Languages  []string `json:"languages,omitempty" jsonschema:"languages with an interpreter of this environment, besides the built-in ones"`
}

// environmentList is the structured part of the answer.
type environmentList struct {
	Namespace    string        `json:"namespace" jsonschema:"namespace of the environments"`
	Environments []environment `json:"environments" jsonschema:"the environments, sorted by name"`
	More         bool          `json:"more" jsonschema:"true if there are more environments than listed"`
}

func (s *Server) listEnvironments(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	who, err := s.requesterOf(req)
	if err != nil {
		return nil, err
	}
	if err := parse(req.Params.Arguments).err(); err != nil {
		return errorAnswer(who, err)
	}
	ctx, end := s.callContext(ctx, req)
	defer end()
	found := &v1alpha1.ExecutionEnvironmentList{}
	if err := who.Environments.List(ctx, found, client.InNamespace(who.Namespace), client.Limit(maxEnvironments)); err != nil {
		return errorAnswer(who, &notCreated{cause: fmt.Errorf("list the environments: %w", err)})
	}
	list := &environmentList{Namespace: who.Namespace, Environments: []environment{}, More: found.Continue != ""}
	for i := range found.Items {
		list.Environments = append(list.Environments, describe(&found.Items[i]))
	}
	structured, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("encode the list: %w", err)
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: list.text()}}, StructuredContent: json.RawMessage(structured),
	}, nil
}

// errorAnswer returns an answer with an error. It has no structured part, because that would have to be a list.
func errorAnswer(who *Requester, err error) (*mcp.CallToolResult, error) {
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: resultOfError(who, err).Message}}, IsError: true,
	}, nil
}

func describe(e *v1alpha1.ExecutionEnvironment) environment {
	d := environment{
		Name: e.Name, Default: e.Annotations[v1alpha1.AnnotationDefaultEnvironment] == "true",
		Image: e.Spec.Image, WorkingDir: e.Spec.WorkingDir, Message: "the operator has not checked it yet",
	}
	for language := range e.Spec.Interpreters {
		d.Languages = append(d.Languages, language)
	}
	slices.Sort(d.Languages)
	if ready := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		d.Ready, d.Message = ready.Status == metav1.ConditionTrue, ready.Message
	}
	if d.Ready {
		d.Message = ""
	}
	if e.Spec.Suspend {
		d.Ready, d.Message = false, "suspended: calls wait until it is resumed"
	}
	return d
}

// text is the list as text for a model.
func (l *environmentList) text() string {
	if len(l.Environments) == 0 {
		return fmt.Sprintf("There are no environments in namespace %s: calls can't run there until an administrator creates one.", l.Namespace)
	}
	var b strings.Builder
	for _, e := range l.Environments {
		fmt.Fprintf(&b, "%s: image %s", e.Name, e.Image)
		if e.WorkingDir != "" {
			fmt.Fprintf(&b, ", starts in %s", e.WorkingDir)
		}
		if len(e.Languages) > 0 {
			fmt.Fprintf(&b, ", additional languages %s", strings.Join(e.Languages, ", "))
		}
		if e.Default {
			b.WriteString(", the default")
		}
		if !e.Ready {
			fmt.Fprintf(&b, ", not ready: %s", e.Message)
		}
		b.WriteString("\n")
	}
	if l.More {
		fmt.Fprintf(&b, "Only the first %d environments are listed.\n", maxEnvironments)
	}
	return b.String()
}
