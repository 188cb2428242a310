package api_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

// Nobody needs to know who set which field of a call, and the API server doesn't track it: not when the call is created,
// not when its status is written, and not when somebody cancels it.
func TestTheFieldsOfACallAreNotTracked(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	call := newCall(s.namespace, "call")
	s.create(call)
	notTracked(t, "created", call.ManagedFields)
	s.report(call, func(status *v1alpha1.ToolCallStatus) { status.Phase = v1alpha1.PhaseRunning })
	notTracked(t, "running", s.get(call.Name).ManagedFields)
	cancel := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"cancel":true},"metadata":{"labels":{"a":"b"}}}`))
	if err := s.admin.Patch(t.Context(), call, cancel); err != nil {
		t.Fatal(err)
	}
	notTracked(t, "cancelled", s.get(call.Name).ManagedFields)
}

func notTracked(t *testing.T, when string, fields []metav1.ManagedFieldsEntry) {
	t.Helper()
	if len(fields) > 0 {
		t.Errorf("%s: %+v", when, fields)
	}
}

// Server-side apply needs what it tracks: what is applied again, with a label less, loses the label.
func TestACallThatIsAppliedKeepsWhatApplyTracks(t *testing.T) {
	s := newSpace(t)
	s.needsStamp()
	manifest := `{"apiVersion":"toolcall.dev/v1alpha1","kind":"ToolCall","metadata":{"namespace":"` + s.namespace + `","name":"applied","labels":{"a":"b"}},"spec":{"shell":{"command":"x"}}}`
	for _, labels := range []string{`"a":"b"`, ``} {
		if said, err := s.Kubectl(strings.Replace(manifest, `"a":"b"`, labels, 1), "apply", "--server-side", "-f", "-"); err != nil {
			t.Fatal(said)
		}
		call := s.get("applied")
		if len(call.ManagedFields) != 1 || (call.Labels["a"] == "b") != (labels != "") {
			t.Errorf("with the labels {%s} it has %v, and %+v", labels, call.Labels, call.ManagedFields)
		}
	}
}
