package subresources

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/utils/clock"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/audit"
)

// A record tells a download that broke off from a whole one: both have begun with 200.
func TestADownloadThatBreaksOffIsRecordedAsOne(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"", "BrokeOff"} {
		var got []audit.Record
		p := &proxy{record: func(one audit.Record) { got = append(got, one) }, clock: clock.RealClock{}}
		q := exchangeBy("u", httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?path=file", nil))
		err := p.serveAudited(q, func(q *exchange) error {
			q.session = &v1alpha1.ToolSession{}
			q.WriteHeader(http.StatusOK)
			q.brokeOff = want != ""
			return nil
		})
		if err != nil || len(got) != 1 || got[0].Outcome.Status != http.StatusOK || got[0].Outcome.Reason != want {
			t.Errorf("%v, %+v, want the reason %q", err, got, want)
		}
	}
}
