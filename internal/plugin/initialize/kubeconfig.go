package initialize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/internal/plugin/cli"
)

const (
	// noKubeconfig is the file's name that has none written.
	noKubeconfig = "-"
	// maxTokenDuration bounds how long a token is asked for. It is a credential in a file.
	maxTokenDuration = 365 * 24 * time.Hour
)

// checkReplaceable accepts a file that doesn't exist, and a kubeconfig whose only user is the account: init wrote that.
func checkReplaceable(file, account string) error {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--kubeconfig-out: %w", err)
	}
	if info.Mode().IsRegular() {
		config, err := clientcmd.LoadFromFile(file)
		if err == nil && len(config.AuthInfos) == 1 && config.AuthInfos[account] != nil {
			return nil
		}
	}
	return fmt.Errorf("%s exists, and isn't the kubeconfig of %s: remove it, or name another file with --kubeconfig-out", file, account)
}

// writeKubeconfig writes a kubeconfig with a new token of the agent, and returns until when that is valid.
func (a *applier) writeKubeconfig(ctx context.Context, file string, d time.Duration) (until time.Time, err error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.plan.namespace, Name: a.plan.agent}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(d / time.Second))}}
	if err := a.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return until, a.explained("create a token of serviceaccount/"+a.plan.agent, err)
	}
	config, err := a.Flags.ToRESTConfig()
	if err != nil {
		return until, err
	}
	cluster, err := clusterOf(config)
	if err != nil {
		return until, err
	}
	raw, err := clientcmd.Write(a.plan.kubeconfig(cluster, request.Status.Token))
	if err != nil {
		return until, fmt.Errorf("encode the kubeconfig: %w", err)
	}
	if err := cli.WriteWhole(file, true, func(to io.Writer) error { _, err := to.Write(raw); return err }); err != nil {
		return until, fmt.Errorf("write %s: %w", file, err)
	}
	return request.Status.ExpirationTimestamp.Time, nil
}

// kubeconfig has the agent's token and no other credentials.
func (p *plan) kubeconfig(cluster *api.Cluster, token string) api.Config {
	config := api.NewConfig()
	config.Clusters["cluster"] = cluster
	config.AuthInfos[p.account()] = &api.AuthInfo{Token: token}
	config.Contexts[p.agent] = &api.Context{Cluster: "cluster", AuthInfo: p.account(), Namespace: p.namespace}
	config.CurrentContext = p.agent
	return *config
}

// clusterOf is how the cluster is reached, without what says who the user is, also in the address.
func clusterOf(config *rest.Config) (*api.Cluster, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the certificates of the cluster: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the cluster: %w", err)
	}
	base.User = nil
	cluster := &api.Cluster{
		Server: base.String(), TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure,
		CertificateAuthorityData: config.CAData, DisableCompression: config.DisableCompression,
	}
	if config.Proxy != nil {
		cluster.ProxyURL, err = proxyFor(config, base)
	}
	return cluster, err
}

// proxyFor is the proxy without the user's name and password for it.
func proxyFor(config *rest.Config, base *url.URL) (string, error) {
	proxy, err := config.Proxy(&http.Request{URL: base})
	if err != nil || proxy == nil {
		return "", err
	}
	return (&url.URL{Scheme: proxy.Scheme, Host: proxy.Host, Path: proxy.Path}).String(), nil
}
