package apicache

import (
	"strings"
	"testing"
)

func TestAQuotaThatIsFullHasRoomLater(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		refusal string
		want    string
	}{
		"pods of others":              {`jobs.batch "c" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=3, limited: count/jobs.batch=3`, "q"},
		"a pod, as an Event says it":  {`Error creating: pods "c-x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`, "q"},
		"several resources":           {`pods "c" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,requests.cpu=500m, used: limits.memory=1Gi,requests.cpu=1, limited: limits.memory=1536Mi,requests.cpu=1`, "q"},
		"more than the quota":         {`pods "c" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=0, limited: requests.cpu=1500m`, ""},
		"one of two more than it":     {`pods "c" is forbidden: exceeded quota: q, requested: pods=1,requests.memory=2Gi, used: pods=1,requests.memory=0, limited: pods=1,requests.memory=1Gi`, ""},
		"a quota of nothing":          {`pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, ""},
		"what has to be specified":    {`pods "c" is forbidden: failed quota: q: must specify limits.cpu for: call`, ""},
		"more than a limit range has": {`pods "c" is forbidden: maximum cpu usage per Container is 1, but limit is 2`, ""},
		"a quota that nobody counted": {`pods "c" is forbidden: status unknown for quota: q, resources: pods`, "q"},
		"a webhook":                   {`admission webhook "x" denied the request: no`, ""},
	} {
		got := FullQuota(tc.refusal)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
