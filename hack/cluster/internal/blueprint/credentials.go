package blueprint

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"toolcall.dev/operator/hack/cluster/internal/pki"
	"toolcall.dev/operator/hack/cluster/internal/settings"
)

// client is a component that talks to the API server with a kubeconfig.
type client struct {
	file    string
	request pki.Request
}

func clients() []client {
	return []client{
		{"kubeconfig", pki.Request{CommonName: "toolcall-admin", Organizations: []string{"system:masters"}}},
		{"kubeconfigs/kube-controller-manager", pki.Request{CommonName: "system:kube-controller-manager"}},
		{"kubeconfigs/kube-scheduler", pki.Request{CommonName: "system:kube-scheduler"}},
		{"kubeconfigs/kube-proxy", pki.Request{CommonName: "system:kube-proxy"}},
		{"kubeconfigs/coredns", pki.Request{CommonName: CoreDNSUser}},
		{"kubeconfigs/provisioner", pki.Request{CommonName: ProvisionerUser}},
		{"kubeconfigs/kubelet", pki.Request{CommonName: "system:node:" + settings.NodeName, Organizations: []string{"system:nodes"}}},
	}
}

// WriteCredentials makes every key, certificate and kubeconfig of the cluster.
func WriteCredentials(in Input) error {
	dir := in.Settings.Path("pki")
	ca, err := writeAuthority(dir, "ca", "toolcall-cluster")
	if err != nil {
		return err
	}
	front, err := writeAuthority(dir, "front-proxy-ca", "toolcall-cluster-front-proxy")
	if err != nil {
		return err
	}
	signing, err := pki.SigningKey()
	if err != nil {
		return err
	}
	node := []string{in.NodeIP().String(), "127.0.0.1"}
	services := []string{apiService.String(), "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + ClusterDomain}
	return errors.Join(
		signing.Write(dir, "sa"),
		issue(ca, dir, "apiserver", pki.Request{CommonName: "kube-apiserver", Hosts: append(node, services...)}),
		issue(ca, dir, "apiserver-kubelet", pki.Request{CommonName: KubeletClientUser}),
		issue(ca, dir, "kubelet", pki.Request{CommonName: "system:node:" + settings.NodeName, Hosts: append(node, settings.NodeName)}),
		issue(front, dir, "front-proxy", pki.Request{CommonName: "front-proxy-client"}),
		writeKubeconfigs(in, ca),
	)
}

func writeAuthority(dir, name, commonName string) (*pki.Authority, error) {
	a, err := pki.NewAuthority(commonName)
	if err != nil {
		return nil, err
	}
	pair, err := a.Pair()
	if err != nil {
		return nil, err
	}
	return a, pair.Write(dir, name)
}

func issue(a *pki.Authority, dir, name string, req pki.Request) error {
	pair, err := a.Issue(req)
	if err != nil {
		return err
	}
	return pair.Write(dir, name)
}

func writeKubeconfigs(in Input, ca *pki.Authority) error {
	for _, c := range clients() {
		pair, err := ca.Issue(c.request)
		if err != nil {
			return err
		}
		text := kubeconfig(in.Server(), c.request.CommonName, ca.CertPEM(), pair)
		if err := os.WriteFile(in.Settings.Path(filepath.FromSlash(c.file)), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func kubeconfig(server, user string, ca []byte, pair pki.Pair) string {
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
`, server, b64(ca), user, b64(pair.Cert), b64(pair.Key), user)
}
