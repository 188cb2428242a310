package supervisor

import (
	"cmp"
	"os"
	"path"
	"strings"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/envresolve"
	"toolcall.dev/operator/internal/runner"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// homeVariable names the home directory.
const homeVariable = "HOME"

// rulesOf are what a call in a directory is held to. Where its policy doesn't bound writing, a call of a session may write
// below the session's directories.
func (e *Executor) rulesOf(a *wire.Assignment, dir string) *rules.Rules {
	r := cmp.Or(a.Rules, e.Rules)
	if r == nil || r.WritePaths != nil || e.Session != nil && e.Rules == nil {
		return r // a session whose calls the node can't keep apart has no bound of its own either
	}
	bounded := *r
	bounded.WritePaths = []string{"/workspace", "/tmp"}
	switch {
	case e.Session != nil:
		bounded.WritePaths = append(bounded.WritePaths, e.ownPaths(a, dir)...)
	case r.Programs != nil && os.Geteuid() == 0:
		// Without a bound, root can write to every program, so that none of those that are listed could run.
		for _, path := range append([]string{dir}, a.Environment.AllowedPaths...) {
			if path != "/" {
				bounded.WritePaths = append(bounded.WritePaths, path)
			}
		}
	default:
		return r
	}
	return &bounded
}

// ownPaths are the home directory, and the call's directory if it is one that the environment allows. The root is
// neither: an environment that lets calls start anywhere doesn't let them write everywhere.
func (e *Executor) ownPaths(a *wire.Assignment, dir string) (paths []string) {
	if home := e.home(&a.Environment); path.IsAbs(home) && path.Clean(home) != "/" {
		paths = append(paths, home)
	}
	req := a.Environment.DirRequest(e.WorkingDir)
	for _, allowed := range req.AllowedRoots() {
		// As it is written: a link may lead anywhere, and a call may have made it.
		if isBelow(dir, path.Clean(allowed)) {
			return append(paths, dir)
		}
	}
	return paths
}

func isBelow(dir, root string) bool {
	return root != "/" && (dir == root || strings.HasPrefix(dir, root+"/"))
}

// home is the home directory that the session or its environment sets, or else the image. A call can set the variable to
// any path, which allows it nothing.
func (e *Executor) home(plan *envresolve.Plan) string {
	resolved, err := e.resolveHome(plan)
	if err != nil {
		return ""
	}
	return runner.Variable(resolved.Env, homeVariable)
}

// callHome is the home directory of a call that sets none.
func (e *Executor) callHome(plan *envresolve.Plan) string {
	resolved, err := e.resolveHome(plan)
	if err != nil {
		return ""
	}
	newVariables(plan, &resolved).setHome()
	return runner.Variable(resolved.Env, homeVariable)
}

func (e *Executor) resolveHome(plan *envresolve.Plan) (envresolve.Resolved, error) {
	own := envresolve.Plan{Blocklist: plan.Blocklist, Trusted: plan.Trusted, InheritMinimal: plan.InheritMinimal}
	for _, layer := range plan.Layers {
		if layer.Source != envresolve.SourceCall {
			own.Layers = append(own.Layers, onlyHome(layer))
		}
	}
	if e.Session != nil && e.Session.Home != "" {
		own.Layers = append(own.Layers, envresolve.Layer{
			Source: envresolve.SourceCall, Vars: []envresolve.Var{{Name: homeVariable, Value: e.Session.Home}},
		})
	}
	var image []string
	for _, kv := range e.Environ {
		if strings.HasPrefix(kv, homeVariable+"=") || strings.HasPrefix(kv, wire.EnvRefPrefix) {
			image = append(image, kv)
		}
	}
	return envresolve.Resolve(&own, image, wire.Internal)
}

func onlyHome(layer envresolve.Layer) envresolve.Layer {
	kept := envresolve.Layer{Source: layer.Source}
	for _, v := range layer.Vars {
		if v.Name == homeVariable {
			kept.Vars = append(kept.Vars, v)
		}
	}
	return kept
}
