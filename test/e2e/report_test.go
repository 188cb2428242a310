package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"toolcall.dev/operator/api/v1alpha1"
)

// reportOnFailure prints, when the test has failed, all that is known of a call.
func (sp *space) reportOnFailure(t *testing.T, call *v1alpha1.ToolCall) {
	since := metav1.Now()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx := context.Background()
		t.Logf("call %s/%s:\n%s", sp.namespace, call.Name, sp.describeCall(ctx, call))
		t.Logf("its pods:\n%s", sp.describePods(ctx, call))
		t.Logf("events of namespace %s:\n%s", sp.namespace, sp.describeEvents(ctx))
		t.Logf("operator:\n%s", sp.operatorLog(ctx, since))
	})
}

func (sp *space) describeCall(ctx context.Context, call *v1alpha1.ToolCall) string {
	current := &v1alpha1.ToolCall{}
	if err := sp.client.Get(ctx, client.ObjectKeyFromObject(call), current); err != nil {
		return err.Error()
	}
	current.ManagedFields = nil
	const shown = 2000
	for _, text := range []*string{&current.Status.Stdout, &current.Status.Stderr, &current.Status.Output, &current.Spec.Stdin} {
		*text = clip(*text, shown)
	}
	if current.Spec.Code != nil {
		current.Spec.Code.Source = clip(current.Spec.Code.Source, shown)
	}
	return toYAML(current)
}

func toYAML(o any) string {
	raw, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (sp *space) describePods(ctx context.Context, call *v1alpha1.ToolCall) string {
	pods := &corev1.PodList{}
	err := sp.client.List(ctx, pods, client.InNamespace(sp.namespace), client.MatchingLabels{v1alpha1.LabelCall: string(call.UID)})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range pods.Items {
		text.WriteString(pods.Items[i].Name + ":\n" + toYAML(pods.Items[i].Status))
	}
	return text.String()
}

func (sp *space) describeEvents(ctx context.Context) string {
	events := &corev1.EventList{}
	if err := sp.client.List(ctx, events, client.InNamespace(sp.namespace)); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, e := range events.Items {
		text.WriteString(e.InvolvedObject.Kind + " " + e.InvolvedObject.Name + " " + e.Reason + ": " + clip(e.Message, 500) + "\n")
	}
	return text.String()
}

// operatorLog is what every replica has logged since then, the end of it.
func (s *suite) operatorLog(ctx context.Context, since metav1.Time) string {
	pods, err := s.clients.CoreV1().Pods(operatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + operatorName})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for i := range pods.Items {
		name := pods.Items[i].Name
		log, err := s.clients.CoreV1().Pods(operatorNamespace).GetLogs(name, &corev1.PodLogOptions{SinceTime: &since, TailLines: ptr.To(int64(20))}).DoRaw(ctx)
		if err != nil {
			log = []byte(err.Error())
		}
		text.WriteString(name + ":\n")
		for line := range strings.Lines(string(log)) {
			text.WriteString(clip(strings.TrimSpace(line), 500) + "\n")
		}
	}
	return text.String()
}
