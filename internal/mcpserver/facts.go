package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"

	"toolcall.dev/operator/api/v1alpha1"
)

// factsTimeout bounds how long a list of tools waits for the environments that it tells of.
const factsTimeout = 5 * time.Second

// facts are what the descriptions of the tools say about the environment at hand. The zero value makes descriptions that are
// true everywhere.
type facts struct {
	// known says that the environments of the namespace are known.
	known bool
	// environment is the default one, empty if there is none.
	environment string
	// keeps are the directories of the default environment whose files outlive a call.
	keeps []string
	// conversation says that calls run in the session of the conversation unless they say otherwise.
	conversation bool
	// connected says that the client has a connection with whose end its sessions end.
	connected bool
}

// files says what becomes of the files of a command.
func (f *facts) files() string {
	if f.conversation {
		return "Calls run in this conversation's session unless they name another session or an environment: files in the workspace, the home " +
			"directory and /tmp stay from call to call, and are gone when the conversation or the session ends, " + f.exceptLasting()
	}
	return f.without() + " Calls with the same session share files: start one with start_session."
}

// without says what becomes of the files of a call without a session.
func (f *facts) without() string {
	switch {
	case !f.known:
		return "Without session, a call runs in a new pod, and its files are gone after it, except on volumes that list_environments shows."
	case f.environment == "":
		return "There is no default environment: pass session, or environment from list_environments. Without session, a call runs in a new pod, and " +
			"its files are gone after it, except on volumes that list_environments shows."
	case len(f.keeps) > 0:
		return fmt.Sprintf("Without session, a call runs in a new pod of the environment %s: files below %s last, all others are gone after it.",
			f.environment, strings.Join(f.keeps, ", "))
	default:
		return fmt.Sprintf("Without session, a call runs in a new pod of the environment %s, and its files are gone after it.", f.environment)
	}
}

// exceptLasting completes a sentence about files that end with their session: the session's pod has the volumes of its environment,
// whichever that is.
func (f *facts) exceptLasting() string {
	const shown = "except on volumes that list_environments shows"
	if len(f.keeps) == 0 {
		return shown + "."
	}
	return fmt.Sprintf("%s, such as those at %s of the environment %s.", shown, strings.Join(f.keeps, ", "), f.environment)
}

// filesOfTools says which files a file tool reaches.
func (f *facts) filesOfTools() string {
	if f.conversation {
		return "It reaches the files of this conversation's session, unless it names another session or an environment."
	}
	switch {
	case !f.known, f.environment == "":
		return "Pass the session whose files you mean: without session it reaches a new pod, where only files on volumes that list_environments shows last."
	case len(f.keeps) > 0:
		return fmt.Sprintf("Pass the session whose files you mean. Without session it reaches a new pod of the environment %s, where only files below %s "+
			"last.", f.environment, strings.Join(f.keeps, ", "))
	default:
		return "Pass the session whose files you mean: without session it reaches a new pod, where no earlier call left anything."
	}
}

// describeTools completes the descriptions for the client that lists the tools.
func (s *Server) describeTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		listed, ok := result.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		f := s.factsFor(ctx, req)
		completed := *listed
		completed.Tools = nil
		for _, t := range listed.Tools {
			completed.Tools = append(completed.Tools, s.tools[t.Name].define(f))
		}
		return &completed, nil
	}
}

// factsFor finds out what the requester of a list can know. Without the right to list environments, or an answer in time, the
// descriptions are general.
func (s *Server) factsFor(ctx context.Context, req mcp.Request) *facts {
	f := &facts{conversation: s.options.SessionPerClient, connected: s.options.Requester != nil || req.GetSession().ID() != ""}
	who, err := s.requesterOf(req.GetExtra())
	if err != nil {
		return f
	}
	place, err := reserve(s.queries, who)
	if err != nil {
		return f
	}
	defer place.Release()
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()
	if found, more, err := s.environmentsOf(ctx, who); err == nil {
		f.addDefault(found, more)
	}
	return f
}

func (f *facts) addDefault(found []environment, more bool) {
	at := slices.IndexFunc(found, func(e environment) bool { return e.Default })
	if at < 0 {
		// There may be one among those that aren't listed.
		f.known = !more
		return
	}
	f.known, f.environment, f.keeps = true, found[at].Name, found[at].Keeps
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
