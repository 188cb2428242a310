package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/blueprint"
	"toolcall.dev/operator/hack/cluster/internal/host"
	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/progress"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
	"toolcall.dev/operator/hack/debian"
)

const lockPatience = 5 * time.Second

// up looks before it builds and builds before it starts.
func (a app) up() error {
	started := time.Now()
	release, running, err := a.begin()
	if err != nil {
		return err
	}
	defer release()
	facts, err := machine.Look()
	if err != nil {
		return err
	}
	if running != nil {
		return a.upAgain(running, facts)
	}
	subnet, err := a.checkMachine()
	if err != nil {
		return err
	}
	if err := debian.Install(a.out, machine.RuntimeNeeds(), !a.settings.NoInstall); err != nil {
		return err
	}
	w, err := a.openNodeWorkshop()
	if err != nil {
		return err
	}
	if err := debian.Install(a.out, w.buildNeeds(), !a.settings.NoInstall); err != nil {
		return err
	}
	in := blueprint.Input{Settings: a.settings, Facts: facts, Subnet: subnet, Programs: w.programs}
	b := &bringUp{app: a, input: in, workshop: w}
	jobs := append(w.jobs(), b.jobs()...)
	if err := runJobs(progress.New(a.out, len(jobs)), jobs); err != nil {
		return fmt.Errorf("%w\nmake cluster-down takes away what was started", err)
	}
	fmt.Fprintf(a.out, "the node is ready after %s; KUBECONFIG=%s\n", progress.Seconds(time.Since(started)), a.settings.Kubeconfig())
	return nil
}

// begin makes sure that this command may touch the cluster, and finds it.
func (a app) begin() (release func(), running *host.Running, err error) {
	if err := machine.RequireRoot(); err != nil {
		return nil, nil, err
	}
	release, err = host.Lock(settings.LockName, lockPatience)
	if err != nil {
		return nil, nil, err
	}
	running, err = a.find()
	if err != nil {
		release()
		return nil, nil, err
	}
	return release, running, nil
}

// find returns nil when nothing runs, and refuses another folder's cluster.
func (a app) find() (*host.Running, error) {
	running, err := host.Find()
	if err != nil || running == nil {
		return nil, err
	}
	if running.Dir != a.settings.Dir {
		return nil, fmt.Errorf("a cluster with its state in %s is running, and there can be only one: set TOOLCALL_CLUSTER_DIR=%s, or take it down with that", running.Dir, running.Dir)
	}
	return running, nil
}

func (a app) checkMachine() (netip.Prefix, error) {
	if err := machine.Preflight(existingParent(a.settings.Dir)); err != nil {
		return netip.Prefix{}, err
	}
	if host.Claimed(a.settings.Dir) {
		fmt.Fprintln(a.out, "an earlier cluster has ended without cluster-down: cleaning up after it")
		if err := host.Clean(a.settings.Dir); err != nil {
			return netip.Prefix{}, err
		}
	}
	if err := host.Claimable(a.settings.Dir); err != nil {
		return netip.Prefix{}, err
	}
	if host.HasInterface(settings.HostInterface) {
		return netip.Prefix{}, fmt.Errorf("the machine has an interface %s, which the cluster needs for itself: remove it with ip link del %s", settings.HostInterface, settings.HostInterface)
	}
	used, err := machine.UsedNetworks()
	if err != nil {
		return netip.Prefix{}, err
	}
	return machine.ChooseSubnet(append(used, blueprint.NodeNetworks()...))
}

func existingParent(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// upAgain finishes a start that was interrupted, or says that nothing is to do.
func (a app) upAgain(running *host.Running, facts machine.Facts) error {
	record, err := host.ReadRecord(a.settings.Dir)
	if err != nil {
		return err
	}
	if record == nil || !host.HasInterface(settings.HostInterface) {
		return errors.New("the running cluster's record or its link is gone: make cluster-down, then make cluster-up")
	}
	subnet, err := netip.ParsePrefix(record.Subnet)
	if err != nil {
		return fmt.Errorf("reading the running cluster's record: %w", err)
	}
	w, err := a.openNodeWorkshop()
	if err != nil {
		return err
	}
	in := blueprint.Input{Settings: a.settings, Facts: facts, Subnet: subnet, Programs: w.programs}
	b := &bringUp{app: a, input: in, workshop: w, running: running}
	if err := b.compose(); err != nil {
		return err
	}
	if b.fingerprint != record.Fingerprint {
		fmt.Fprintln(a.out, "warning: the running cluster was started with other versions or settings; make cluster-down cluster-up renews it")
	}
	if _, err := os.Stat(a.settings.Path(readyMarker)); err != nil {
		fmt.Fprintln(a.out, "the cluster is running, but its start wasn't finished: going on with it")
		jobs := b.settleJobs()
		if err := runJobs(progress.New(a.out, len(jobs)), jobs); err != nil {
			return err
		}
	}
	if err := a.startStopped(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.limit(startLimit))
	defer cancel()
	if err := b.awaitNode(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "the cluster is running; KUBECONFIG=%s\n", a.settings.Kubeconfig())
	return err
}

// startStopped undoes what fault tests may have left.
func (a app) startStopped() error {
	all, err := supervisor.Ask(a.settings.ControlSocket(), supervisor.Request{Verb: "status"})
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.State != supervisor.StateStopped {
			continue
		}
		fmt.Fprintf(a.out, "%s was stopped: starting it\n", c.Name)
		if _, err := supervisor.Ask(a.settings.ControlSocket(), supervisor.Request{Verb: "start", Component: c.Name}); err != nil {
			return err
		}
	}
	return nil
}
