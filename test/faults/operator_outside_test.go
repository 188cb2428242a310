package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

const identityName = "toolcall-identity"

// operatorOutside has the operator run on the machine, outside of the node, until the test ends: what happens to the
// node doesn't happen to it. It is the installed program with the installed arguments, taken out of its pod, and has
// the rights of its own account and no others.
func (b *bed) operatorOutside(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	pod, err := b.leader(t.Context())
	must(t, err)
	program, args := takeProgram(t, managers(pod)[0], dir)
	b.writeIdentity(t, filepath.Join(dir, "identity"))
	server, address := b.ends(t)
	b.writeAccount(t, server, filepath.Join(dir, "kubeconfig"))
	before := b.scale(t, 0)
	t.Cleanup(func() { b.scale(t, before) })
	b.awaitNoOperator(t)

	// The last one of two equal flags counts.
	args = append(args, "--identity-dir="+filepath.Join(dir, "identity"), "--metrics-address=0", "--health-address=0", "--output-api=false",
		"--dispatch-address="+net.JoinHostPort(address, "9443"))
	operator := exec.Command(program, args...)
	operator.Env = []string{"KUBECONFIG=" + filepath.Join(dir, "kubeconfig"), "POD_NAMESPACE=" + operatorNamespace, "POD_IP=" + address}
	var log bytes.Buffer
	operator.Stdout, operator.Stderr = &log, &log
	must(t, operator.Start())
	t.Cleanup(func() {
		_ = operator.Process.Signal(syscall.SIGTERM)
		if err := operator.Wait(); err != nil || t.Failed() {
			t.Logf("the operator on the machine ended %v; the end of its log:\n%s", err, log.Bytes()[max(0, log.Len()-8000):])
		}
	})
	b.awaitLeaderHere(t)
}

// takeProgram copies the program of a process, and says with which arguments it was started.
func takeProgram(t *testing.T, process int, dir string) (program string, args []string) {
	t.Helper()
	from, err := os.Open(fmt.Sprintf("/proc/%d/exe", process))
	must(t, err)
	defer from.Close()
	program = filepath.Join(dir, "manager")
	to, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o700)
	must(t, err)
	_, err = io.Copy(to, from)
	must(t, err)
	must(t, to.Close())
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process))
	must(t, err)
	return program, strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:]
}

// writeIdentity is what the kubelet mounts into the operator's pod.
func (b *bed) writeIdentity(t *testing.T, dir string) {
	t.Helper()
	secret, err := b.clients.CoreV1().Secrets(operatorNamespace).Get(t.Context(), identityName, metav1.GetOptions{})
	must(t, err)
	must(t, os.Mkdir(dir, 0o700))
	for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
		must(t, os.WriteFile(filepath.Join(dir, key), secret.Data[key], 0o600))
	}
}

// ends are the API server, and the machine's own address on the way there: where pods find the machine.
func (b *bed) ends(t *testing.T) (server *clientcmdapi.Cluster, address string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	must(t, err)
	server = config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	at, err := url.Parse(server.Server)
	must(t, err)
	// Nothing is sent: the kernel only chooses the way.
	way, err := net.Dial("udp", at.Host)
	must(t, err)
	defer way.Close()
	address, _, err = net.SplitHostPort(way.LocalAddr().String())
	must(t, err)
	return server, address
}

func (b *bed) writeAccount(t *testing.T, server *clientcmdapi.Cluster, file string) {
	t.Helper()
	token, err := b.clients.CoreV1().ServiceAccounts(operatorNamespace).CreateToken(t.Context(), operatorName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(3600))}}, metav1.CreateOptions{})
	must(t, err)
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = server
	config.AuthInfos["operator"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["operator"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: "operator"}
	config.CurrentContext = "operator"
	must(t, clientcmd.WriteToFile(*config, file))
}

func (b *bed) awaitNoOperator(t *testing.T) {
	t.Helper()
	await(t, "end of the operator's pods", func(ctx context.Context) (bool, error) {
		pods, err := b.clients.CoreV1().Pods(operatorNamespace).List(ctx, operatorPods)
		return err == nil && len(pods.Items) == 0, err
	})
}

// awaitLeaderHere waits until a process of this machine leads: outside of a pod the name is the machine's.
func (b *bed) awaitLeaderHere(t *testing.T) {
	t.Helper()
	host, err := os.Hostname()
	must(t, err)
	await(t, "operator on the machine that leads", func(ctx context.Context) (bool, error) {
		lease, err := b.clients.CoordinationV1().Leases(operatorNamespace).Get(ctx, operatorName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return false, err
		}
		return strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), host+"_") && time.Since(lease.Spec.RenewTime.Time) < 5*time.Second, nil
	})
}
