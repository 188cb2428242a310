package blueprint

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"toolcall.dev/operator/hack/cluster/internal/settings"
)

// clients are those that talk to the API server with a kubeconfig, by its file in the state folder.
var clients = map[string]cert.Config{
	"kubeconfig":                          {CommonName: "toolcall-admin", Organization: []string{"system:masters"}},
	"kubeconfigs/kube-controller-manager": {CommonName: "system:kube-controller-manager"},
	"kubeconfigs/kube-scheduler":          {CommonName: "system:kube-scheduler"},
	"kubeconfigs/kube-proxy":              {CommonName: "system:kube-proxy"},
	"kubeconfigs/coredns":                 {CommonName: CoreDNSUser},
	"kubeconfigs/provisioner":             {CommonName: ProvisionerUser},
	"kubeconfigs/kubelet":                 {CommonName: kubeletUser, Organization: []string{"system:nodes"}},
}

const kubeletUser = "system:node:" + settings.NodeName

// WriteCredentials makes every key, certificate and kubeconfig of the cluster.
func WriteCredentials(in Input) error {
	dir := in.Settings.Path("pki")
	ca, err := newAuthority(dir, "ca", "toolcall-cluster")
	if err != nil {
		return err
	}
	front, err := newAuthority(dir, "front-proxy-ca", "toolcall-cluster-front-proxy")
	if err != nil {
		return err
	}
	// What signs service accounts' tokens; the API server reads the public key from it, too.
	signing, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("generating the key that signs tokens: %w", err)
	}
	node := []net.IP{in.NodeIP().AsSlice(), net.IPv4(127, 0, 0, 1)}
	apiserver := cert.AltNames{
		IPs:      append(node, apiService.AsSlice()),
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + ClusterDomain},
	}
	return errors.Join(
		keyutil.WriteKey(filepath.Join(dir, "sa.key"), signing),
		ca.writeIssued(dir, "apiserver", cert.Config{CommonName: "kube-apiserver", AltNames: apiserver}),
		ca.writeIssued(dir, "apiserver-kubelet", cert.Config{CommonName: KubeletClientUser}),
		ca.writeIssued(dir, "kubelet", cert.Config{CommonName: kubeletUser, AltNames: cert.AltNames{IPs: node, DNSNames: []string{settings.NodeName}}}),
		front.writeIssued(dir, "front-proxy", cert.Config{CommonName: "front-proxy-client"}),
		writeKubeconfigs(in, ca),
	)
}

func (a authority) writeIssued(dir, name string, c cert.Config) error {
	issued, err := a.issue(c)
	if err != nil {
		return err
	}
	return issued.write(dir, name)
}

func writeKubeconfigs(in Input, ca authority) error {
	authorities, err := cert.EncodeCertificates(ca.cert)
	if err != nil {
		return err
	}
	for file, who := range clients {
		issued, err := ca.issue(who)
		if err != nil {
			return err
		}
		text := kubeconfig(in.Server(), who.CommonName, authorities, issued)
		if err := os.WriteFile(in.Settings.Path(file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfig(server, user string, ca []byte, issued pair) string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: toolcall
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: toolcall
  context: {cluster: toolcall, user: "%s"}
current-context: toolcall
`, server, b64(ca), user, b64(issued.cert), b64(issued.key), user)
}
