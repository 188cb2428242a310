package mcpserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/mcpserver/tools"
)

func descriptionsOf(t *testing.T, session *mcp.ClientSession) map[string]string {
	t.Helper()
	listed, err := session.ListTools(t.Context(), nil)
	must(t, err)
	found := map[string]string{}
	for _, tool := range listed.Tools {
		found[tool.Name] = tool.Description
	}
	return found
}

// Descriptions say which files last in the default environment of the namespace, as far as the requester may know.
func TestDescriptionsAreTrueForTheEnvironment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sees := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"executionenvironments"}, Verbs: []string{"list"}}
	seeing, blind := s.session(s.user("seeing", sees), "/mcp", withSessions), s.session(s.user("blind"), "/mcp", "")
	if got := descriptionsOf(t, seeing)["run_command"]; !strings.Contains(got, "There is no default environment") {
		t.Errorf("without environments: %s", got)
	}
	environment := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "tools", Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}},
		Spec:       v1alpha1.ExecutionEnvironmentSpec{Image: "example.com/tools:1"},
	}
	must(t, s.admin.Create(t.Context(), environment))
	if got := descriptionsOf(t, seeing)["run_code"]; !strings.Contains(got, "a new pod of the environment tools, and its files are gone after it") {
		t.Errorf("without volumes: %s", got)
	}
	environment.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	environment.Spec.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	must(t, s.admin.Update(t.Context(), environment))
	if got := descriptionsOf(t, seeing)["start_session"]; !strings.Contains(got, "It ends with this connection") {
		t.Errorf("with a connection: %s", got)
	}
	for _, name := range []string{"start_session", "end_session"} {
		if got := descriptionsOf(t, seeing)[name]; !strings.Contains(got, "except on volumes that list_environments shows, such as those at /data of the environment tools") {
			t.Errorf("with a volume: %s: %s", name, got)
		}
		if got := descriptionsOf(t, blind)[name]; !strings.Contains(got, "except on volumes that list_environments shows.") {
			t.Errorf("to who may not list environments: %s: %s", name, got)
		}
	}
	if got := descriptionsOf(t, blind)["start_session"]; !strings.Contains(got, "It doesn't end with your connection") {
		t.Errorf("without a connection that lasts: %s", got)
	}
	for _, name := range []string{"run_command", "run_program", "run_code", "read_file", "write_file", "edit_file", "list_files", "search_files"} {
		if got := descriptionsOf(t, seeing)[name]; !strings.Contains(got, "below /data") {
			t.Errorf("with a volume: %s: %s", name, got)
		}
		if got := descriptionsOf(t, blind)[name]; strings.Contains(got, "/data") || strings.Contains(got, "tools,") {
			t.Errorf("to who may not list environments: %s: %s", name, got)
		}
		if got := descriptionsOf(t, blind)[name]; !strings.Contains(got, "on volumes that list_environments shows") {
			t.Errorf("to who may not list environments, volumes are left out: %s: %s", name, got)
		}
	}
}

func TestDescriptionsWithASessionPerClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	session := perClient(t, f)
	for _, name := range []string{"run_command", "read_file"} {
		if got := descriptionsOf(t, session)[name]; !strings.Contains(got, "this conversation's session") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := descriptionsOf(t, session)["run_command"]; !strings.Contains(got, "stay until it ends, except on volumes that list_environments shows.") {
		t.Errorf("without a volume: %s", got)
	}
	environment := &v1alpha1.ExecutionEnvironment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "tools", Annotations: map[string]string{v1alpha1.AnnotationDefaultEnvironment: "true"}},
		Spec: v1alpha1.ExecutionEnvironmentSpec{
			Image:   "example.com/tools:1",
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.example", Path: "/"}}}}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		},
	}
	must(t, f.admin.Create(t.Context(), environment))
	// A client keeps the list for a while.
	if got := descriptionsOf(t, perClient(t, f))["run_command"]; !strings.Contains(got, "stay until it ends, except on volumes that list_environments shows, such as those at /data of the environment tools.") {
		t.Errorf("with a volume: %s", got)
	}
	if got := session.InitializeResult(); !strings.Contains(got.Instructions, "share a session") || got.ServerInfo.Version != "test" {
		t.Errorf("%+v", got)
	}
	if got := connected(t, newTestServer(t, f.local(), 8), nil).InitializeResult().Instructions; !strings.Contains(got, "in a new pod unless it names a session") {
		t.Errorf("%s", got)
	}
}

// Clients may not share what depends on the user.
func TestListsOfToolsArePrivate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	listed, err := s.session(s.user("agent"), "/mcp", "").ListTools(t.Context(), nil)
	must(t, err)
	if listed.CacheScope != "private" || listed.TTLMs != 300_000 {
		t.Errorf("scope %q, %d ms", listed.CacheScope, listed.TTLMs)
	}
}

func TestLastingDirectories(t *testing.T) {
	t.Parallel()
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	readOnlyClaim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}
	for name, test := range map[string]struct {
		source   corev1.VolumeSource
		readOnly bool
		want     []string
	}{
		"a claim":                {claim, false, []string{"/a", "/b"}},
		"a claim to read":        {readOnlyClaim, false, nil},
		"mounted to be read":     {claim, true, nil},
		"a share":                {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, false, []string{"/a", "/b"}},
		"a share to read":        {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{ReadOnly: true}}, false, nil},
		"a disk to read":         {corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{ReadOnly: true}}, false, nil},
		"a directory of a node":  {corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, false, []string{"/a", "/b"}},
		"a driver's volume":      {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "volumes.example.com"}}, false, nil},
		"a cloud's share":        {corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{}}, false, []string{"/a", "/b"}},
		"the pod's own":          {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false, nil},
		"a claim made for a pod": {corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}, false, nil},
		"a Secret":               {corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, false, nil},
		"an image":               {corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}, false, nil},
	} {
		spec := &v1alpha1.ExecutionEnvironmentSpec{
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: test.source}, {Name: "other"}},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "v", MountPath: "/b", ReadOnly: test.readOnly}, {Name: "v", MountPath: "/a", ReadOnly: test.readOnly}, {Name: "other", MountPath: "/c"}, {Name: "none", MountPath: "/d"},
			},
		}
		if diff := cmp.Diff(test.want, lastingDirectories(spec)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A list of tools costs a model at most 16 KiB, which is 4096 tokens of 4 characters, whatever the environment is.
func TestListsOfToolsAreSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4096)
	for name, f := range map[string]*tools.Facts{
		"unknown": {}, "without a default": {Known: true}, "with one": {Known: true, Environment: long}, "connected": {Known: true, Environment: long, Connected: true},
		"with volumes": {Known: true, Environment: long, Keeps: []string{long, long}}, "in a conversation": {Known: true, Environment: long, Keeps: []string{long}, Conversation: true},
	} {
		sizes := map[tools.View]int{}
		for _, view := range tools.Views() {
			listed := &mcp.ListToolsResult{}
			for _, tool := range (&Server{}).toolset() {
				if tool.In(view) {
					listed.Tools = append(listed.Tools, tool.Define(f))
				}
			}
			raw, err := json.Marshal(listed)
			must(t, err)
			sizes[view] = len(raw)
		}
		t.Logf("%s: %v bytes", name, sizes)
		if sizes[tools.All] > 16<<10 || sizes[tools.Files] > 10<<10 || sizes[tools.Run] > 10<<10 {
			t.Errorf("%s: %v bytes", name, sizes)
		}
	}
}

// Each path has its tools, and no others.
func TestViews(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	token := s.user("agent", runsCalls())
	for path, want := range map[string][2]bool{
		"/mcp": {true, true}, "/mcp/files": {true, false}, "/mcp/run": {false, true}, "/mcp/" + s.namespace: {true, true},
		"/mcp/" + s.namespace + "/files": {true, false}, "/mcp/" + s.namespace + "/run": {false, true}, "/mcp/" + s.namespace + "/all": {true, true},
	} {
		session := s.session(token, path, "")
		found := descriptionsOf(t, session)
		got := [2]bool{found["read_file"] != "", found["run_command"] != ""}
		if got != want || found["start_session"] == "" {
			t.Errorf("%s: %v", path, got)
		}
		for i, tool := range []string{"read_file", "run_command"} {
			_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: fields{"unknown": 1}})
			if (err == nil) != want[i] || err != nil && !strings.Contains(err.Error(), "unknown tool") {
				t.Errorf("%s: %s: %v", path, tool, err)
			}
		}
	}
}

// The hints tell clients what needs no confirmation: a wrong one would let a model change something unasked.
func TestAnnotationsAreRight(t *testing.T) {
	t.Parallel()
	harmless := []string{"read_file", "list_files", "search_files", "list_environments", "get_call", "read_output"}
	repeatable := append([]string{"write_file", "end_session", "cancel_call"}, harmless...)
	open := []string{"run_command", "run_program", "run_code"}
	destructive := append([]string{"write_file", "edit_file", "end_session", "cancel_call"}, open...)
	s := NewServer(Options{MaxCalls: 1, MaxCallsPerUser: 1, Version: "test", Log: quiet()})
	for _, tool := range s.toolset() {
		d := tool.Define(&tools.Facts{})
		got := *d.Annotations
		want := mcp.ToolAnnotations{
			ReadOnlyHint: slices.Contains(harmless, d.Name), IdempotentHint: slices.Contains(repeatable, d.Name),
			DestructiveHint: new(slices.Contains(destructive, d.Name)), OpenWorldHint: new(slices.Contains(open, d.Name)),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", d.Name, diff)
		}
	}
}
