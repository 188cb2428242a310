package doctor

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"toolcall.dev/operator/internal/testing/plugintest"
)

// nodesWith is a cluster whose nodes' kubelets answer so when they are asked for their configuration.
func nodesWith(f *plugintest.Fixture, kubelets map[string]string) string {
	return f.Proxied(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/api/v1/nodes" {
			list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
			for name := range kubelets {
				node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				list.Items = append(list.Items, node)
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(&list)
			return
		}
		name, isAsked := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
		if name, _ = strings.CutSuffix(name, "/proxy/configz"); !isAsked || kubelets[name] == "forward" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if kubelets[name] == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(kubelets[name]))
	})
}

func TestDoctorWarnsOfPodsWithoutABoundOfProcesses(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	server := nodesWith(f, map[string]string{
		"bounded": `{"kubeletconfig":{"podPidsLimit":1024}}`, "another": `{"kubeletconfig":{"podPidsLimit":99}}`,
		"unbounded": `{"kubeletconfig":{"podPidsLimit":-1}}`, "default": `{"kubeletconfig":{}}`, "silent": "",
	})
	out, errs, code := plugintest.CommandAt(server, "-n", f.Namespace, "doctor")
	plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 1, "OK process IDs podPidsLimit bounds the processes of a pod on 2 of the 5 nodes",
		"WARNING process IDs unbounded: its kubelet has no podPidsLimit", "WARNING process IDs default: its kubelet has no podPidsLimit", "for example to 1024",
		"UNKNOWN process IDs silent: its kubelet's podPidsLimit can't be read")
}

// Who may list nodes, but not ask their kubelets, is told once.
func TestDoctorSaysThatKubeletsCantBeAsked(t *testing.T) {
	t.Parallel()
	f := plugintest.New(t)
	server := nodesWith(f, map[string]string{"a": "forward", "b": "forward"})
	out, errs, code := plugintest.CommandAt(server, "-n", f.Namespace, "doctor", "--as", "nobody")
	plugintest.Printed{Out: out, Err: errs, Code: code}.Expect(t, 0, "UNKNOWN process IDs you have no permission to read the kubelets' podPidsLimit (get nodes/proxy)")
	if strings.Count(out, "podPidsLimit (get") != 1 {
		t.Errorf("got %s", out)
	}
}
