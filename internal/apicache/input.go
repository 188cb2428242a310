package apicache

import (
	"strconv"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxCachedInput is how much input of a call the cache keeps, in bytes. A larger input is read when the call is decided
// about and when it is handed over, so that pending calls cost the operator no more than this each.
const maxCachedInput = 4 << 10

// annotationInputBytes holds, in memory only, the size of the input that was left out.
const annotationInputBytes = "toolcall.dev/input-bytes"

// slimCall leaves a large input out of a call.
func slimCall(call *v1alpha1.ToolCall) {
	// Whatever a client wrote there.
	delete(call.Annotations, annotationInputBytes)
	size := InputBytes(call)
	if size <= maxCachedInput {
		return
	}
	if call.Annotations == nil {
		call.Annotations = map[string]string{}
	}
	call.Annotations[annotationInputBytes] = strconv.Itoa(size)
	spec := &call.Spec
	spec.Structured, spec.Shell, spec.Code, spec.Tool = nil, nil, nil, nil
	spec.Stdin, spec.Env = "", nil
}

func isWhole(call *v1alpha1.ToolCall) bool {
	_, left := call.Annotations[annotationInputBytes]
	return !left
}

// InputBytes is the size of what the call's creator chose: command, arguments, source, variables, standard input.
func InputBytes(call *v1alpha1.ToolCall) int {
	if size, err := strconv.Atoi(call.Annotations[annotationInputBytes]); err == nil {
		return size
	}
	spec := &call.Spec
	size := len(spec.Stdin) + len(spec.WorkingDir)
	for _, v := range spec.Env {
		size += len(v.Name) + len(v.Value)
	}
	if spec.Structured != nil {
		size += len(spec.Structured.Binary)
		for _, arg := range spec.Structured.Args {
			size += len(arg)
		}
	}
	if spec.Shell != nil {
		size += len(spec.Shell.Command)
	}
	if spec.Code != nil {
		size += len(spec.Code.Source)
	}
	if spec.Tool != nil && spec.Tool.Arguments != nil {
		size += len(spec.Tool.Arguments.Raw)
	}
	return size
}
