package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/blueprint"
	"toolcall.dev/operator/hack/cluster/internal/host"
	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
	"toolcall.dev/operator/hack/debian"
)

const lockPatience = 5 * time.Second

// up looks before it builds and builds before it starts. On a cluster that runs, it finishes what an earlier start or a
// fault test has left undone.
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
	w, err := a.openNodeWorkshop()
	if err != nil {
		return err
	}
	b := &bringUp{app: a, workshop: w, running: running, input: blueprint.Input{Settings: a.settings, Facts: facts, Programs: w.programs}}
	jobs := b.settleJobs()
	if running != nil {
		err = b.resume()
	} else {
		err = b.prepareMachine()
		jobs = slices.Concat(w.jobs(), b.startJobs(), jobs)
	}
	if err != nil {
		return err
	}
	if err := runJobs(os.Stdout, jobs); err != nil {
		return fmt.Errorf("%w\nmake cluster-down takes away what was started", err)
	}
	fmt.Printf("the node is ready after %s; KUBECONFIG=%s\n", seconds(time.Since(started)), a.settings.Kubeconfig())
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

// prepareMachine names what would make a start fail, installs what is missing, and chooses the node's network.
func (b *bringUp) prepareMachine() error {
	dir := b.app.settings.Dir
	if err := machine.Preflight(existingParent(dir)); err != nil {
		return err
	}
	if host.Claimed(dir) {
		fmt.Println("an earlier cluster has ended without cluster-down: cleaning up after it")
		if err := host.Clean(dir); err != nil {
			return err
		}
	}
	if err := host.Claimable(dir); err != nil {
		return err
	}
	if host.HasInterface(settings.HostInterface) {
		return fmt.Errorf("the machine has an interface %s, which the cluster needs for itself: remove it with ip link del %s", settings.HostInterface, settings.HostInterface)
	}
	needs := append(machine.RuntimeNeeds(), b.workshop.buildNeeds()...)
	if err := debian.Install(os.Stdout, needs, !b.app.settings.NoInstall); err != nil {
		return err
	}
	used, err := machine.UsedNetworks()
	if err != nil {
		return err
	}
	b.input.Subnet, err = machine.ChooseSubnet(append(used, blueprint.NodeNetworks()...))
	return err
}

func existingParent(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// resume finds out how the running cluster was started, and starts what fault tests may have stopped.
func (b *bringUp) resume() error {
	s := b.app.settings
	plan, err := supervisor.ReadPlan(s.PlanFile())
	if err == nil {
		b.input.Subnet, err = netip.ParsePrefix(plan.Address)
	}
	if err != nil || !host.HasInterface(settings.HostInterface) {
		return errors.Join(errors.New("the running cluster's plan or its link is gone: make cluster-down, then make cluster-up"), err)
	}
	files, err := blueprint.Compose(b.input)
	if err != nil {
		return err
	}
	for name, text := range files {
		if have, err := os.ReadFile(s.Path(name)); err != nil || string(have) != text {
			fmt.Println("warning: the running cluster was started with other versions or settings; make cluster-down cluster-up renews it")
			break
		}
	}
	return b.app.startStopped()
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
		fmt.Printf("%s was stopped: starting it\n", c.Name)
		if _, err := supervisor.Ask(a.settings.ControlSocket(), supervisor.Request{Verb: "start", Component: c.Name}); err != nil {
			return err
		}
	}
	return nil
}
