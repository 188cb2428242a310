package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/blueprint"
	"toolcall.dev/operator/hack/cluster/internal/host"
	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/programs"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
	"toolcall.dev/operator/hack/images/image"
)

const (
	startLimit = 90 * time.Second
	pollEvery  = 100 * time.Millisecond
)

// bringUp carries one start from an empty state folder to a ready node.
type bringUp struct {
	app      app
	input    blueprint.Input
	workshop workshop
	// running is nil until the node's supervisor answers.
	running *host.Running
}

// limit is how long something may take that takes at most d on an ordinary machine.
func (a app) limit(d time.Duration) time.Duration { return d * time.Duration(a.settings.Slow) }

func (b *bringUp) startJobs() []job {
	return []job{
		{"preparing state and certificates", b.prepare},
		{"starting the node", b.start},
	}
}

// settleJobs wait until everything answers, and do what it needs for that; doing it again changes nothing.
func (b *bringUp) settleJobs() []job {
	timed := func(run func(context.Context) error) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(context.Background(), b.app.limit(startLimit))
			defer cancel()
			return run(ctx)
		}
	}
	return []job{
		{"waiting for the API server", timed(b.awaitComponents("etcd", "containerd", "kube-apiserver"))},
		{"loading the pause image", b.loadPause},
		{"setting up cluster DNS, roles and storage", timed(b.bootstrap)},
		{"waiting for the other components", timed(b.awaitComponents("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "provisioner"))},
		{"waiting for the node", timed(b.awaitNode)},
		{"waiting for DNS and service accounts", timed(b.awaitServices)},
	}
}

func (b *bringUp) prepare() error {
	files, err := blueprint.Compose(b.input)
	if err != nil {
		return err
	}
	s := b.input.Settings
	if err := host.Claim(s.Dir); err != nil {
		return err
	}
	for _, dir := range []string{"pki", "kubeconfigs", "logs", "tmp", "home", "pod-logs", "kubelet", "volumes", "cni"} {
		if err := os.Mkdir(s.Path(dir), 0o700); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(s.Path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return blueprint.WriteCredentials(b.input)
}

func (b *bringUp) start() error {
	if err := host.WriteRecord(b.input.Settings.Dir); err != nil {
		return err
	}
	if err := machine.MakeCgroup(settings.CgroupRoot); err != nil {
		return err
	}
	ended, err := host.Start(b.input.Settings.Dir, netip.PrefixFrom(b.input.HostIP(), b.input.Subnet.Bits()))
	if err != nil {
		return err
	}
	return b.awaitSupervisor(ended)
}

func (b *bringUp) awaitSupervisor(ended <-chan error) error {
	deadline := time.After(b.app.limit(10 * time.Second))
	for {
		select {
		case err := <-ended:
			// The error may be nil.
			return errors.Join(errors.New("the node's first process has ended"), err, errors.New(b.logTail("node")))
		case <-deadline:
			return fmt.Errorf("the node's supervisor doesn't answer\n%s", b.logTail("node"))
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := supervisor.Ask(b.input.Settings.ControlSocket(), supervisor.Request{Verb: "status"}); err == nil {
			running, err := host.Find()
			b.running = running
			return err
		}
	}
}

// awaitComponents waits until the named components answer.
func (b *bringUp) awaitComponents(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		var pending string
		err := poll(ctx, func() bool {
			all, err := supervisor.Ask(b.input.Settings.ControlSocket(), supervisor.Request{Verb: "status"})
			pending = firstPending(all, names)
			return err == nil && pending == ""
		})
		if err != nil {
			return fmt.Errorf("%s didn't get ready in time\n%s", pending, b.logTail(pending))
		}
		return nil
	}
}

func firstPending(all []supervisor.Status, names []string) string {
	ready := map[string]bool{}
	for _, c := range all {
		ready[c.Name] = c.Ready
	}
	for _, n := range names {
		if !ready[n] {
			return n
		}
	}
	return ""
}

func (b *bringUp) loadPause() error {
	tar, err := image.Pause(b.workshop.source, b.app.settings.Cache, blueprint.PauseTag)
	if err != nil {
		return err
	}
	return importImage(b.running, b.input.Settings, tar)
}

func (b *bringUp) bootstrap(ctx context.Context) error {
	var last error
	err := poll(ctx, func() bool {
		_, last = b.kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", b.input.Settings.Path("bootstrap.yaml"))
		return last == nil
	})
	if err != nil {
		return errors.Join(last, errors.New(b.logTail("kube-apiserver")))
	}
	return nil
}

func (b *bringUp) awaitNode(ctx context.Context) error {
	var state string
	err := poll(ctx, func() bool {
		out, err := b.kubectl(ctx, "get", "node", settings.NodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]['status','message']}`)
		state = out
		return err == nil && strings.HasPrefix(out, "True")
	})
	if err != nil {
		return fmt.Errorf("the node isn't ready: %s\n%s", state, b.logTail("kubelet"))
	}
	return nil
}

func (b *bringUp) awaitServices(ctx context.Context) error {
	if err := poll(ctx, func() bool { return b.resolves(ctx) }); err != nil {
		return fmt.Errorf("cluster DNS doesn't answer\n%s", b.logTail("coredns"))
	}
	err := poll(ctx, func() bool {
		_, err := b.kubectl(ctx, "get", "serviceaccount", "default", "--namespace=default", "-o", "name")
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("the default service account doesn't appear\n%s", b.logTail("kube-controller-manager"))
	}
	return nil
}

func (b *bringUp) resolves(ctx context.Context) bool {
	server := net.JoinHostPort(b.input.NodeIP().String(), "53")
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	ctx, cancel := context.WithTimeout(ctx, b.app.limit(time.Second))
	defer cancel()
	addrs, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+blueprint.ClusterDomain+".")
	return err == nil && len(addrs) > 0
}

func (b *bringUp) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, programs.Find(b.workshop.programs, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.input.Settings.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

func poll(ctx context.Context, done func() bool) error {
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	return nil
}

func (b *bringUp) logTail(component string) string {
	path := b.input.Settings.Log(component)
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("(no log in %s)", path)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	lines = lines[max(0, len(lines)-15):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 300)]
	}
	return fmt.Sprintf("the end of %s:\n%s", path, strings.Join(lines, "\n"))
}
