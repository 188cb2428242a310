package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/mcpserver/reply"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

const (
	// factsTimeout bounds how long a list of tools waits for the environments that it tells of.
	factsTimeout = 5 * time.Second
	// listLasts is how long clients may keep a list of tools: what it says of the environment changes seldom.
	listLasts = 5 * time.Minute
)

// describeTools completes the descriptions for the client that lists the tools, and leaves out those that its view doesn't have. For that
// client they don't exist.
func (s *Server) describeTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		view := s.viewOf(req.GetExtra())
		if call, ok := req.(*mcp.CallToolRequest); ok && !s.tools[call.Params.Name].In(view) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", bounds.Text(call.Params.Name, 64))}
		}
		result, err := next(ctx, method, req)
		listed, ok := result.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		f := s.factsFor(ctx, req)
		completed := *listed
		completed.Tools = nil
		for _, listed := range listed.Tools {
			if t := s.tools[listed.Name]; t.In(view) {
				completed.Tools = append(completed.Tools, t.Define(f))
			}
		}
		return &completed, nil
	}
}

// factsFor finds out what the requester of a list can know. Without the right to list environments, or an answer in time, the
// descriptions are general.
func (s *Server) factsFor(ctx context.Context, req mcp.Request) *tools.Facts {
	f := &tools.Facts{Conversation: s.options.SessionPerClient, Connected: s.options.Requester != nil || req.GetSession().ID() != ""}
	who, err := s.requesterOf(req.GetExtra())
	if err != nil {
		return f
	}
	place, err := s.reserve(s.queries, who)
	if err != nil {
		return f
	}
	defer place.Release()
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	if found, more, err := s.environmentsOf(ctx, who); err == nil {
		addDefault(f, found, more)
	}
	return f
}

func addDefault(f *tools.Facts, found []reply.Environment, more bool) {
	at := slices.IndexFunc(found, func(e reply.Environment) bool { return e.Default })
	if at < 0 {
		// There may be one among those that aren't listed.
		f.Known = !more
		return
	}
	f.Known, f.Environment, f.Keeps = true, found[at].Name, found[at].Keeps
}

// lastingDirectories returns the directories on volumes that outlive a pod and that calls can write to.
func lastingDirectories(spec *v1alpha1.ExecutionEnvironmentSpec) []string {
	lasts := map[string]bool{}
	for i := range spec.Volumes {
		lasts[spec.Volumes[i].Name] = outlivesPods(&spec.Volumes[i].VolumeSource)
	}
	var directories []string
	for _, mount := range spec.VolumeMounts {
		if lasts[mount.Name] && !mount.ReadOnly {
			directories = append(directories, mount.MountPath)
		}
	}
	slices.Sort(directories)
	return slices.Compact(directories)
}

// outlivesPods reports whether a volume may keep files that a pod writes.
func outlivesPods(v *corev1.VolumeSource) bool {
	switch {
	case *v == (corev1.VolumeSource{}), v.EmptyDir != nil, v.Ephemeral != nil, v.CSI != nil:
		return false // made for the pod
	case v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil, v.Image != nil, v.GitRepo != nil:
		return false // not what others read
	case v.PersistentVolumeClaim != nil:
		return !v.PersistentVolumeClaim.ReadOnly
	case v.NFS != nil:
		return !v.NFS.ReadOnly
	case v.ISCSI != nil:
		return !v.ISCSI.ReadOnly
	default:
		return true
	}
}
