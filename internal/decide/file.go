package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/bounds"
	"toolcall.dev/operator/internal/guards"
	"toolcall.dev/operator/internal/spec"
)

// file is a file action as the runner gets it.
func (d *Decision) file(action *v1alpha1.FileAction) (*spec.File, error) {
	if d.Files == nil {
		return nil, errors.New("the decision has no rules for files")
	}
	content, err := guards.FileContent(action)
	if err != nil {
		return nil, fmt.Errorf("decode the content of an accepted call: %w", err)
	}
	f := &spec.File{
		Operation: spec.Operation(action.Operation), Path: action.Path, Offset: ptr.Deref(action.Offset, 0), Limit: ptr.Deref(action.Limit, 0),
		Unit: spec.Unit(action.Unit), Content: content, IfSHA256: action.IfSHA256, OldString: action.OldString, NewString: action.NewString,
		ReplaceAll: action.ReplaceAll, Pattern: action.Pattern, Literal: action.Literal, Glob: action.Glob, Recursive: action.Recursive,
		MaxResults: int(ptr.Deref(action.MaxResults, 0)), Destination: action.Destination, Overwrite: action.Overwrite, Rules: *d.Files,
		ContextLines: int(ptr.Deref(action.ContextLines, 0)), RespectGitIgnore: action.RespectGitIgnore,
	}
	for _, e := range action.Edits {
		f.Edits = append(f.Edits, spec.Replacement(e))
	}
	if action.Mode != "" {
		mode, err := strconv.ParseUint(action.Mode, 8, 32)
		if err != nil {
			return nil, fmt.Errorf("read the mode of an accepted call: %w", err)
		}
		f.Mode = ptr.To(uint32(mode))
	}
	return f, nil
}

const (
	// outputCopies is how often a status has what a call printed: as stdout, and as output.
	outputCopies = 2
	// maxEscape is how many bytes of JSON one byte takes at most.
	maxEscape = 6
	// statusRest is room for what else a status has.
	statusRest = 200 << 10
	// minOutputRoom is for a call that takes nearly all there is.
	minOutputRoom = 1 << 10
)

// outputRoom is how many bytes a call may print so that its status holds them all, whatever they are: the output of a file
// action is cut where the runner says, and nowhere else.
func outputRoom(call *v1alpha1.ToolCall) int {
	raw, err := json.Marshal(&v1alpha1.ToolCall{ObjectMeta: call.ObjectMeta, Spec: call.Spec})
	if err != nil {
		return minOutputRoom
	}
	return max(minOutputRoom, (bounds.MaxObjectBytes-statusRest-len(raw))/(outputCopies*maxEscape))
}
