package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/host"
	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
)

func (a app) down() error {
	started := time.Now()
	release, running, err := a.begin()
	if err != nil {
		return err
	}
	defer release()
	if running == nil && !host.Claimed(a.settings.Dir) {
		fmt.Println("no local cluster is there")
		return nil
	}
	if running != nil {
		if err := running.Stop(); err != nil {
			return err
		}
	}
	if err := host.Clean(a.settings.Dir); err != nil {
		return err
	}
	fmt.Printf("the local cluster is gone after %s; built programs stay in %s\n", seconds(time.Since(started)), a.settings.Cache)
	return nil
}

func (a app) status() error {
	running, err := a.require()
	if err != nil {
		return err
	}
	all, err := supervisor.Ask(a.settings.ControlSocket(), supervisor.Request{Verb: "status"})
	if err != nil {
		return err
	}
	fmt.Printf("node %s, first process %d, kubeconfig %s, logs in %s\n\n",
		settings.NodeName, running.PID, a.settings.Kubeconfig(), a.settings.Path("logs"))
	return printStatus(all)
}

func printStatus(all []supervisor.Status) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COMPONENT\tSTATE\tREADY\tPID IN NODE\tSINCE\tRESTARTS\tLAST END")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%s\t%t\t%d\t%s\t%d\t%s\n", c.Name, c.State, c.Ready, c.PID,
			time.Since(c.Since).Truncate(time.Second), c.Restarts, c.LastEnd)
	}
	return w.Flush()
}

func (a app) kubeconfig() error {
	path := a.settings.Kubeconfig()
	if _, err := os.Stat(path); err != nil {
		return errNotRunning
	}
	fmt.Println(path)
	return nil
}

// require finds the running cluster or fails.
func (a app) require() (*host.Running, error) {
	if err := machine.RequireRoot(); err != nil {
		return nil, err
	}
	running, err := a.find()
	if err != nil {
		return nil, err
	}
	if running == nil {
		return nil, errNotRunning
	}
	return running, nil
}

func (a app) load(files []string) error {
	if len(files) == 0 {
		return errors.New("name the image tarballs to load")
	}
	running, err := a.require()
	if err != nil {
		return err
	}
	var jobs []job
	for _, f := range files {
		jobs = append(jobs, job{"loading " + filepath.Base(f), func() error { return importImage(running, a.settings, f) }})
	}
	return runJobs(os.Stdout, jobs)
}

func importImage(running *host.Running, s settings.Settings, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	args := running.EnterArgs(s.Path("bin", "containerd", "ctr"), "--namespace=k8s.io", "images", "import", "-")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s: %w\n%s", file, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// exec replaces this process, so that signals and the exit code pass through.
func (a app) exec(args []string) error {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return errors.New("name the command to run inside the node")
	}
	running, err := a.require()
	if err != nil {
		return err
	}
	enter := running.EnterArgs(args...)
	path, err := exec.LookPath(enter[0])
	if err != nil {
		return err
	}
	if err := os.Setenv("PATH", a.settings.SearchPath()); err != nil {
		return err
	}
	return syscall.Exec(path, enter, os.Environ())
}

func (a app) control(verb string, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs the name of one component", verb)
	}
	if _, err := a.require(); err != nil {
		return err
	}
	_, err := supervisor.Ask(a.settings.ControlSocket(), supervisor.Request{Verb: verb, Component: args[0]})
	return err
}
