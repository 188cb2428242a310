package blueprint

import (
	"fmt"

	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
)

const (
	etcdURL = "http://127.0.0.1:2379"
	issuer  = "https://kubernetes.default.svc." + ClusterDomain
)

// components lists what runs, in starting order.
func components(in Input) []supervisor.Component {
	s := in.Settings
	bin := func(module, program string) string { return s.Path("bin", module, program) }
	kube := func(program string) string { return bin("kubernetes", program) }
	return []supervisor.Component{
		{Name: "etcd", Args: append([]string{bin("etcd", "etcd")}, etcdArgs(s)...), Ready: "http://127.0.0.1:2381/readyz"},
		{Name: "containerd", Args: []string{bin("containerd", "containerd"), "--config", s.Path("containerd.toml")},
			Ready: "unix:///run/containerd/containerd.sock"},
		{Name: "kube-apiserver", Args: append([]string{kube("kube-apiserver")}, apiserverArgs(in)...),
			After: []string{"etcd"}, Ready: in.Server() + "/readyz"},
		{Name: "kube-controller-manager", Args: append([]string{kube("kube-controller-manager")}, controllerManagerArgs(s)...),
			After: []string{"kube-apiserver"}, Ready: "https://127.0.0.1:10257/healthz"},
		{Name: "kube-scheduler", Args: append([]string{kube("kube-scheduler")}, schedulerArgs(s)...),
			After: []string{"kube-apiserver"}, Ready: "https://127.0.0.1:10259/healthz"},
		{Name: "kubelet", Args: append([]string{kube("kubelet")}, kubeletArgs(in)...),
			After: []string{"containerd", "kube-apiserver"}, Ready: "http://127.0.0.1:10248/healthz"},
		{Name: "kube-proxy", Args: []string{kube("kube-proxy"), "--config=" + s.Path("kube-proxy.yaml")},
			After: []string{"kube-apiserver"}, Ready: "http://127.0.0.1:10256/livez"},
		{Name: "coredns", Args: []string{bin("coredns", "coredns"), "-conf", s.Path("Corefile")},
			After: []string{"kube-apiserver"}, Ready: "http://127.0.0.1:8181/ready"},
		{Name: "provisioner", Args: append([]string{bin("provisioner", "provisioner")}, provisionerArgs(s)...),
			After: []string{"kube-apiserver"}, Ready: "http://127.0.0.1:10270/metrics"},
	}
}

func etcdArgs(s settings.Settings) []string {
	const peer = "http://127.0.0.1:2380"
	args := []string{
		"--name=node", "--data-dir=" + s.Path("etcd"),
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=node=" + peer,
		"--listen-metrics-urls=http://127.0.0.1:2381",
	}
	if s.NoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func apiserverArgs(in Input) []string {
	s := in.Settings
	pki := func(file string) string { return s.Path("pki", file) }
	return []string{
		"--advertise-address=" + in.NodeIP().String(),
		fmt.Sprintf("--secure-port=%d", APIPort),
		"--etcd-servers=" + etcdURL,
		"--service-cluster-ip-range=" + serviceCIDR.String(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + pki("sa.key"), "--service-account-signing-key-file=" + pki("sa.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
	}
}

func controllerManagerArgs(s settings.Settings) []string {
	config := s.Path("kubeconfigs", "kube-controller-manager")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
		"--root-ca-file=" + s.Path("pki", "ca.crt"),
		"--service-account-private-key-file=" + s.Path("pki", "sa.key"),
		"--cluster-signing-cert-file=" + s.Path("pki", "ca.crt"), "--cluster-signing-key-file=" + s.Path("pki", "ca.key"),
	}
}

func schedulerArgs(s settings.Settings) []string {
	config := s.Path("kubeconfigs", "kube-scheduler")
	return []string{
		"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
		"--bind-address=127.0.0.1", "--leader-elect=false",
	}
}

func kubeletArgs(in Input) []string {
	s := in.Settings
	return []string{
		"--config=" + s.Path("kubelet.yaml"), "--kubeconfig=" + s.Path("kubeconfigs", "kubelet"),
		"--hostname-override=" + settings.NodeName, "--node-ip=" + in.NodeIP().String(),
		"--root-dir=" + s.Path("kubelet"),
	}
}

func provisionerArgs(s settings.Settings) []string {
	return []string{
		"-kubeconfig=" + s.Path("kubeconfigs", "provisioner"), "-name=" + ProvisionerName,
		"-node=" + settings.NodeName, "-dir=" + s.Path("volumes"), "-metrics-port=10270",
	}
}
