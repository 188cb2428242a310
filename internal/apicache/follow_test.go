package apicache

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"toolcall.dev/operator/api/v1alpha1"
)

// pages is an API server with a list of three calls, of which the second page has expired.
func pages(t *testing.T, again string) client.Reader {
	return interceptor.NewClient(stored(t, false), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(options)
			if o.Continue == "second" {
				expired := apierrors.NewResourceExpired("too old")
				expired.ErrStatus.Continue = again
				return expired
			}
			next := map[string]string{"": "second", "later": "third"}[o.Continue]
			list.SetContinue(next)
			name := metav1.ObjectMeta{Name: "before " + next}
			switch list := list.(type) {
			case *metav1.PartialObjectMetadataList:
				list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: name}}
			case *v1alpha1.ToolCallList:
				list.Items = []v1alpha1.ToolCall{{ObjectMeta: name}}
			}
			return nil
		},
	})
}

func TestAListThatExpiresGoesOn(t *testing.T) {
	t.Parallel()
	for again, want := range map[string][]string{
		"later":  {"before second", "before third", "before "},
		"":       {"before second"},
		"second": {"before second"},
	} {
		var metadata, calls []string
		api := pages(t, again)
		err := EachPage(t.Context(), api, "ToolCall", client.ListOptions{}, func(page *metav1.PartialObjectMetadataList) error {
			metadata = append(metadata, page.Items[0].Name)
			return nil
		})
		whole := Reader{Live: api}.EachFinished(t.Context(), "ns", fields.Everything(), func(call *v1alpha1.ToolCall) { calls = append(calls, call.Name) })
		if hasFailed := len(want) == 1; (err != nil) != hasFailed || (whole != nil) != hasFailed {
			t.Errorf("%q: %v, %v", again, err, whole)
		}
		if !slices.Equal(metadata, want) || !slices.Equal(calls, want) {
			t.Errorf("%q: visited %q, %q", again, metadata, calls)
		}
	}
}
