package guards

import (
	"path"
	"slices"
	"strings"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/glob"
	"toolcall.dev/operator/internal/spec"
)

// Artifacts has the bounds of what a call collects, and no paths.
func (p *Policy) Artifacts() spec.Collect { return p.artifacts }

func compileArtifacts(c *compiler, limits *v1alpha1.ArtifactsPolicy) spec.Collect {
	return spec.Collect{
		MaxCount:      int(between(c, "spec.output.artifacts.maxCount", limits.MaxCount, span[int32]{v1alpha1.MaxArtifacts, 0, v1alpha1.MaxArtifacts})),
		MaxBytes:      between(c, "spec.output.artifacts.maxBytes", limits.MaxBytes, span[int64]{defaultArtifactBytes, 1, limitKeepBytes}),
		MaxTotalBytes: between(c, "spec.output.artifacts.maxTotalBytes", limits.MaxTotalBytes, span[int64]{defaultAllArtifactBytes, 1, limitKeepBytes}),
	}
}

// checkCollect says what is wrong about globs whatever the pod has. Where a relative one leads, and where links do, the runner
// alone sees.
func (f *fileRules) checkCollect(in *Input) *Denial {
	if len(in.Collect) > 0 && in.Action.Type == v1alpha1.ActionFile {
		return deny(v1alpha1.ReasonInvalidArguments, "collect means nothing to a file action, which starts no process: leave it out")
	}
	for i, one := range in.Collect {
		dir, rest, err := glob.Split(one)
		switch {
		case err != nil:
			return deny(v1alpha1.ReasonInvalidArguments, "collect[%d]: %s is not a glob of files: %s", i, quote(one), err.Error())
		case !strings.HasPrefix(dir, "/"):
			continue
		}
		if glob.IsPlain(rest) {
			rest = path.Join(dir, rest)
		} else {
			rest = dir
		}
		if denial := f.checkCollected(i, one, dir, rest); denial != nil {
			return denial
		}
	}
	return nil
}

// checkCollected looks at an absolute glob: the directory that its matches are in, and as much of their paths as it names.
func (f *fileRules) checkCollected(i int, one, dir, known string) *Denial {
	switch {
	case f.denied != nil && f.denied.MatchString(known):
		return deny(v1alpha1.ReasonInvalidArguments, "collect[%d]: %s is denied by the policy's files.deniedPaths: collect other files", i, quote(one))
	case f.writePaths != nil && !slices.ContainsFunc(f.writePaths, func(root string) bool { return isBelow(root, dir) }):
		instead := "the list is empty, so leave it out"
		if len(f.writePaths) > 0 {
			instead = "use a path below " + joinNames(f.writePaths)
		}
		return deny(v1alpha1.ReasonInvalidArguments, "collect[%d]: %s is outside of what the policy's files.writePaths let the call write to: %s",
			i, quote(one), instead)
	default:
		return nil
	}
}

func isBelow(root, dir string) bool {
	return dir == path.Clean(root) || strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}
