package supervisor

import (
	"context"
	"path"
	"time"

	"toolcall.dev/operator/internal/dispatch/wire"
	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/collect"
)

const (
	// collectLimit is how long a call's files are collected. It is stoppedCollectLimit for a call that was stopped: a person may be
	// waiting for its end.
	collectLimit        = 10 * time.Second
	stoppedCollectLimit = 2 * time.Second
)

// collect keeps the files that a call asks for, when its process has ended. It only adds artifacts to the outcome: a file that can't be
// kept is no failure of the call.
func (e *Executor) collect(ctx context.Context, a *wire.Assignment, dir string, p *prepared, o *result.Outcome) {
	if a.Collect == nil || !o.Started {
		return
	}
	limit := collectLimit
	if ctx.Err() != nil {
		ctx, limit = context.WithoutCancel(ctx), stoppedCollectLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if takeFileSlot(ctx) != nil {
		o.Artifacts = &result.Artifacts{Message: "Nothing was collected: the pod's other operations on files don't end."}
		return
	}
	type collected struct {
		files     *collect.Files
		artifacts *result.Artifacts
	}
	request := e.collectRequest(a, dir, p)
	c, isDone := inSlot(ctx, func() (c collected) {
		c.files, c.artifacts = collect.Do(ctx, request)
		return c
	}, func(c collected) { c.files.Drop() })
	if !isDone {
		c.artifacts = &result.Artifacts{Message: "Nothing was collected: a file system doesn't answer."}
	}
	o.Artifacts = c.artifacts
	if c.files != nil && !e.Outputs.setFiles(a.CallUID, c.files) {
		c.files.Drop()
	}
}

func (e *Executor) collectRequest(a *wire.Assignment, dir string, p *prepared) *collect.Request {
	r := &collect.Request{Collect: *a.Collect, WorkingDir: dir, Home: p.home(), RunnerPaths: privateFilesPaths(), Shown: p.hidden.text}
	if r.WritePaths == nil {
		r.WritePaths = e.defaultWritePaths(a, dir)
	}
	return r
}

// defaultWritePaths are what a call writes to where the policy doesn't say.
func (e *Executor) defaultWritePaths(a *wire.Assignment, dir string) []string {
	paths := []string{"/workspace", "/tmp"}
	for _, own := range e.ownPaths(a, dir) {
		paths = append(paths, path.Clean(own))
	}
	return paths
}
