package apicache

import (
	"strconv"

	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/jobspec"
)

// maxCachedInput is how much of what a call's creator chose the cache keeps, in bytes: input, labels, annotations. More
// is read when the call is decided about and when it is handed over, so that pending calls cost the operator no more
// than this each.
const maxCachedInput = 4 << 10

// maxCachedAnnotation bounds each annotation that the operator reads, of a call with more than that.
const maxCachedAnnotation = 512

// annotationInputBytes holds, in memory only, the size of the input that was left out.
const annotationInputBytes = "toolcall.dev/input-bytes"

// slimCall leaves a large input out of a call, and large metadata: kubectl apply writes all of the object there again. A
// call that has been through it stays as it is: a cache that fills from a watch has each object go through twice.
func slimCall(call *v1alpha1.ToolCall) {
	if bound := call.Status.Runner; bound != nil && len(bound.Decision) > maxCachedInput {
		bound.Decision = omittedDecision
	}
	if isSlim(call) {
		return
	}
	unmark(call)
	size := InputBytes(call)
	if size+metadataBytes(call) <= maxCachedInput {
		return
	}
	slimMetadata(call)
	call.Annotations[annotationInputBytes] = strconv.Itoa(size)
	spec := &call.Spec
	spec.Structured, spec.Shell, spec.Code, spec.Tool, spec.File = nil, nil, nil, nil, nil
	spec.Stdin, spec.Env, spec.Collect, spec.Network = "", nil, nil, nil
}

// omittedDecision stands, in memory only, for a sealed decision that was left out.
const omittedDecision = "-"

// omittedFinalizers stands, in memory only, for a call's finalizers.
const omittedFinalizers = "-"

// isSlim says that the input was left out. What the API server took has an action, or no more than the cache keeps.
func isSlim(call *v1alpha1.ToolCall) bool {
	spec := &call.Spec
	hasAction := spec.Structured != nil || spec.Shell != nil || spec.Code != nil || spec.Tool != nil || spec.File != nil
	empty := !hasAction && spec.Stdin == "" && spec.Env == nil && spec.Collect == nil && spec.Network == nil
	return empty && !isWhole(call) && metadataBytes(call) <= maxCachedInput
}

// unmark drops a mark that a client wrote.
func unmark(call *v1alpha1.ToolCall) { delete(call.Annotations, annotationInputBytes) }

// metadataBytes is the size of what the call's creator chose of its metadata.
func metadataBytes(call *v1alpha1.ToolCall) int {
	size := textBytes(call.Labels) + textBytes(call.Annotations)
	for i := range call.OwnerReferences {
		owner := &call.OwnerReferences[i]
		size += len(owner.APIVersion) + len(owner.Kind) + len(owner.Name) + len(owner.UID)
	}
	for _, name := range call.Finalizers {
		size += len(name)
	}
	return size
}

// textBytes is the size of labels or annotations.
func textBytes(texts map[string]string) int {
	size := 0
	for key, value := range texts {
		size += len(key) + len(value)
	}
	return size
}

// slimMetadata keeps what the operator reads.
func slimMetadata(call *v1alpha1.ToolCall) {
	labels, annotations := call.Labels, call.Annotations
	call.Labels, call.Annotations = map[string]string{}, map[string]string{}
	call.OwnerReferences = nil
	if len(call.Finalizers) > 0 {
		// That there are some is read. Nobody writes them: a patch of the status has no metadata.
		call.Finalizers = []string{omittedFinalizers}
	}
	if queue, ok := labels[jobspec.LabelQueue]; ok {
		call.Labels[jobspec.LabelQueue] = queue
	}
	for _, key := range []string{v1alpha1.AnnotationRestored, v1alpha1.AnnotationTraceParent, v1alpha1.AnnotationTraceState} {
		if value, ok := annotations[key]; ok {
			call.Annotations[key] = value[:min(len(value), maxCachedAnnotation)]
		}
	}
}

func isWhole(call *v1alpha1.ToolCall) bool {
	_, left := call.Annotations[annotationInputBytes]
	return !left
}

// InputBytes is the size of what the call's creator chose: command, arguments, source, content and edits of a file, variables, standard
// input, hosts.
func InputBytes(call *v1alpha1.ToolCall) int {
	if size, err := strconv.Atoi(call.Annotations[annotationInputBytes]); err == nil && size >= 0 {
		return size
	}
	spec := &call.Spec
	size := len(spec.Stdin) + len(spec.WorkingDir)
	for _, v := range spec.Env {
		size += len(v.Name) + len(v.Value)
	}
	for _, one := range spec.Collect {
		size += len(one)
	}
	if spec.Network != nil {
		for _, one := range spec.Network.Hosts {
			size += len(one)
		}
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
	if f := spec.File; f != nil {
		size += len(f.Path) + len(f.OldString) + len(f.NewString) + len(f.Pattern) + len(f.Glob) + len(f.Destination)
		size += len(ptr.Deref(f.Content, "")) + len(ptr.Deref(f.ContentBase64, ""))
		for i := range f.Edits {
			size += len(f.Edits[i].OldString) + len(f.Edits[i].NewString)
		}
	}
	if spec.Tool != nil && spec.Tool.Arguments != nil {
		size += len(spec.Tool.Arguments.Raw)
	}
	return size
}
