package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"toolcall.dev/operator/api/v1alpha1"
)

const (
	decisions = "/apis/toolcall.dev/v1alpha1/namespaces/agents/toolcallapprovals"
	someUID   = "6f9c3c5e-0f2c-4a53-9d55-0d2f8f0d9a0e"
)

var someDigest = "sha256:" + strings.Repeat("a", 64)

// approves is the body of an approval.
func approves(uid, note string) string {
	return fmt.Sprintf(`{"callRef":{"name":"push","uid":%q},"digest":%q,"decision":"Approve","note":%q}`, uid, someDigest, note)
}

// decides makes a request a decision, as the console's page sends it.
func decides(console *httptest.Server, body string) request {
	return func(r *http.Request) {
		r.Method = http.MethodPost
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", console.URL)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
}

// approverRules are the rights of the ClusterRole toolcall-approver; one of them may be left out.
func approverRules(without string) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcalls"}, Verbs: []string{"get", "list", "watch", "approve"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"toolcallapprovals"}, Verbs: []string{"get", "list", "watch", "create"}},
	}
	for i := range rules {
		if last := len(rules[i].Verbs) - 1; rules[i].Verbs[last] == without {
			rules[i].Verbs = rules[i].Verbs[:last]
		}
	}
	return rules
}

// The decision is the token's user's, and says what was checked. Whether it counts for the call, also with a digest that isn't the
// call's, is the operator's to say.
func TestADecisionIsWritten(t *testing.T) {
	f := newFixture(t)
	call := f.newCall("push", "git push")
	path := strings.TrimSuffix(f.list(), "toolcalls") + "toolcallapprovals"
	response := send(t, f.console, path, withToken(f.user("jane", approverRules("")...)), decides(f.console, approves(string(call.UID), "by tonight")))
	checkHeaders(t, response, dataPolicy)
	answer := &v1alpha1.ToolCallApproval{}
	must(t, json.Unmarshal([]byte(read(t, response)), answer))
	stored := &v1alpha1.ToolCallApproval{}
	must(t, f.admin.Get(t.Context(), client.ObjectKeyFromObject(answer), stored))
	approver := stored.Spec.Approver
	stored.Spec.Approver = nil
	want := v1alpha1.ToolCallApprovalSpec{
		CallRef: v1alpha1.CallReference{Name: "push", UID: string(call.UID)}, Digest: someDigest, Decision: v1alpha1.DecisionApprove, Note: "by tonight",
	}
	if diff := cmp.Diff(want, stored.Spec); diff != "" || response.StatusCode != http.StatusOK || !strings.HasPrefix(stored.Name, "push-") {
		t.Errorf("%d, %s: %s", response.StatusCode, stored.Name, diff)
	}
	if jane := "system:serviceaccount:" + f.namespace + ":jane"; approver == nil || approver.Username != jane || approver.UID == "" || len(approver.Groups) == 0 {
		t.Errorf("the approver is %+v", approver)
	}
}

func TestADecisionNeedsTheTokensRights(t *testing.T) {
	f := newFixture(t)
	call := f.newCall("push", "git push")
	path := strings.TrimSuffix(f.list(), "toolcalls") + "toolcallapprovals"
	for _, c := range []struct {
		name, token string
		code        int
		message     string
	}{
		{"a viewer", f.user("viewer", reads()...), 403, `cannot create resource "toolcallapprovals"`},
		{"without create", f.user("reader", approverRules("create")...), 403, `cannot create resource "toolcallapprovals"`},
		{"without approve", f.user("writer", approverRules("approve")...), 403, `you may not decide about the ToolCall "push"`},
		{"a token that the API server refuses", "abc.def", 401, "Unauthorized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := statusOf(t, send(t, f.console, path, withToken(c.token), decides(f.console, approves(string(call.UID), ""))))
			if int(got.Code) != c.code || !strings.Contains(got.Message, c.message) {
				t.Errorf("%d %q, want %d and %q in it", got.Code, got.Message, c.code, c.message)
			}
		})
	}
	list := &v1alpha1.ToolCallApprovalList{}
	if must(t, f.admin.List(t.Context(), list, client.InNamespace(f.namespace))); len(list.Items) > 0 {
		t.Errorf("%d decisions were written", len(list.Items))
	}
}

// The API server says who the user is, and gets nothing of the page's request but the checked fields and the token.
func TestADecisionIsMadeAnew(t *testing.T) {
	t.Parallel()
	var bodies []string
	console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer abc" || r.Header.Get("Content-Type") != "application/json" || len(r.Header) != 6 {
			t.Errorf("%s %s, %v, %v", r.Method, r.URL, r.Header, err)
		}
		bodies = append(bodies, r.URL.String()+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"status":{"userInfo":{"username":"jane","groups":["a"],"extra":{"b":["c"]}}}}`)
	})
	long := strings.Repeat("a.", 120) + "a"
	body := strings.Replace(approves(someUID, "<b>\u202e"), "push", long, 1)
	response := send(t, console, decisions, withToken("abc"), decides(console, body), withHeader("Impersonate-User", "admin"), withHeader("X-Remote-User", "admin"))
	if response.StatusCode != http.StatusOK || len(bodies) != 2 {
		t.Fatalf("%d %s, %q", response.StatusCode, read(t, response), bodies)
	}
	prefix := strings.TrimRight(long[:200], ".-") + "-"
	want := []string{
		"/apis/authentication.k8s.io/v1/selfsubjectreviews " + userReview,
		decisions + ` {"kind":"ToolCallApproval","apiVersion":"toolcall.dev/v1alpha1","metadata":{"generateName":"` + prefix + `","namespace":"agents"},` +
			`"spec":{"callRef":{"name":"` + long + `","uid":"` + someUID + `"},"digest":"` + someDigest + `","decision":"Approve",` +
			`"note":"\u003cb\u003e` + "\u202e" + `","approver":{"username":"jane","groups":["a"],"extra":{"b":["c"]}}},"status":{}}`,
	}
	if diff := cmp.Diff(want, bodies); diff != "" {
		t.Error(diff)
	}
}

func TestAdversarialDecisionsDontPass(t *testing.T) {
	t.Parallel()
	console := newConsole(t, never(t))
	fine := approves(someUID, "")
	without := func(name string) request { return func(r *http.Request) { r.Header.Del(name) } }
	with := func(name, value string) request { return func(r *http.Request) { r.Header.Set(name, value) } }
	body := func(old, now string) request { return decides(console, strings.Replace(fine, old, now, 1)) }
	for name, c := range map[string]struct {
		path    string
		code    int
		changes []request
	}{
		"no origin":               {decisions, 403, []request{without("Origin")}},
		"another origin":          {decisions, 403, []request{with("Origin", "https://evil.test")}},
		"no origin's page":        {decisions, 403, []request{with("Origin", "null")}},
		"the origin without TLS":  {decisions, 403, []request{with("Origin", strings.Replace(console.URL, "https", "http", 1))}},
		"two origins":             {decisions, 403, []request{withHeader("Origin", console.URL)}},
		"another site's page":     {decisions, 403, []request{with("Sec-Fetch-Site", "cross-site")}},
		"a sibling's page":        {decisions, 403, []request{with("Sec-Fetch-Site", "same-site")}},
		"a form":                  {decisions, 415, []request{with("Content-Type", "application/x-www-form-urlencoded")}},
		"plain text":              {decisions, 415, []request{with("Content-Type", "text/plain")}},
		"no type":                 {decisions, 415, []request{without("Content-Type")}},
		"a type with parameters":  {decisions, 415, []request{with("Content-Type", "application/json; charset=utf-7")}},
		"no body":                 {decisions, 411, []request{decides(console, "")}},
		"a body of unknown size":  {decisions, 411, []request{func(r *http.Request) { r.ContentLength = -1 }}},
		"a body that is too long": {decisions, 413, []request{decides(console, fine+strings.Repeat(" ", maxDecision))}},
		"a parameter":             {decisions + "?dryRun=All", 400, nil},
		"another host":            {decisions, 421, []request{func(r *http.Request) { r.Host = "evil.test" }}},
		"no token":                {decisions, 401, []request{without("Authorization")}},
		"a token in a cookie":     {decisions, 401, []request{without("Authorization"), with("Cookie", "token=abc")}},
		"another resource":        {calls, 405, nil},
		"all namespaces":          {"/apis/toolcall.dev/v1alpha1/toolcallapprovals", 405, nil},
		"who one is":              {userPath, 405, nil},
		"an escaped path":         {strings.Replace(decisions, "toolcallapprovals", "%74oolcallapprovals", 1), 405, nil},
		"another namespace":       {strings.Replace(decisions, "agents", "Agents", 1), 400, nil},
		"not JSON":                {decisions, 400, []request{decides(console, "callRef=a")}},
		"not an object":           {decisions, 400, []request{decides(console, "[]")}},
		"null":                    {decisions, 400, []request{decides(console, "null")}},
		"two objects":             {decisions, 400, []request{decides(console, fine+fine)}},
		"half an object":          {decisions, 400, []request{decides(console, fine[:len(fine)-1])}},
		"another field":           {decisions, 400, []request{body(`"note"`, `"metadata":{},"note"`)}},
		"an approver":             {decisions, 400, []request{body(`"note"`, `"approver":{"username":"admin"},"note"`)}},
		"a field of the call":     {decisions, 400, []request{body(`"uid"`, `"namespace":"b","uid"`)}},
		"a note that isn't UTF-8": {decisions, 400, []request{body(`"note":""`, "\"note\":\"\xff\"")}},
		"a note that is too long": {decisions, 400, []request{decides(console, approves(someUID, strings.Repeat("é", maxNote+1)))}},
		"another decision":        {decisions, 400, []request{body("Approve", "approve")}},
		"no decision":             {decisions, 400, []request{body("Approve", "")}},
		"half a digest":           {decisions, 400, []request{body("aaaa", "")}},
		"a name that isn't one":   {decisions, 400, []request{body("push", "../a")}},
		"no name":                 {decisions, 400, []request{body("push", "")}},
		"a UID that isn't one":    {decisions, 400, []request{body(someUID, "*")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes := append([]request{withToken("abc"), decides(console, fine)}, c.changes...)
			if got := statusOf(t, send(t, console, c.path, changes...)); int(got.Code) != c.code {
				t.Errorf("the code is %d, not %d: %s", got.Code, c.code, got.Message)
			}
		})
	}
}

// Where the API server doesn't say who the user is, nothing is written.
func TestADecisionWithoutAUser(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]int{`{"status":{"userInfo":{}}}`: 502, `{"status":`: 502, ``: 404} {
		console := newConsole(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != userPath {
				t.Errorf("the API server got %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(map[bool]int{true: http.StatusNotFound, false: http.StatusCreated}[answer == ""])
			fmt.Fprint(w, answer)
		})
		if got := statusOf(t, send(t, console, decisions, withToken("abc"), decides(console, approves(someUID, "")))); int(got.Code) != code {
			t.Errorf("%q: %+v", answer, got)
		}
	}
}
