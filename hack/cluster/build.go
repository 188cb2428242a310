package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"toolcall.dev/operator/hack/cluster/internal/machine"
	"toolcall.dev/operator/hack/cluster/internal/programs"
	"toolcall.dev/operator/hack/debian"
)

// workshop knows where everything that is built comes from, and the programs.
type workshop struct {
	source   string
	programs []programs.Resolved
}

func (a app) openWorkshop(modules []programs.Module) (workshop, error) {
	wd, err := os.Getwd()
	if err != nil {
		return workshop{}, err
	}
	source, err := programs.FindSource(wd)
	if err != nil {
		return workshop{}, err
	}
	resolved, err := programs.Resolve(source, a.settings.Cache, modules)
	return workshop{source: source, programs: resolved}, err
}

// openNodeWorkshop is about what the chosen node runs.
func (a app) openNodeWorkshop() (workshop, error) {
	modules, err := programs.Catalogue(a.settings.Kubernetes, a.settings.GVisor)
	if err != nil {
		return workshop{}, fmt.Errorf("TOOLCALL_CLUSTER_KUBERNETES: %w", err)
	}
	return a.openWorkshop(modules)
}

type job struct {
	title string
	run   func() error
}

// jobs lists the builds that are missing, one a module; only, when given, limits their programs.
func (w workshop) jobs(only ...string) []job {
	var jobs []job
	for _, r := range w.programs {
		var missing []programs.Program
		var names []string
		for _, p := range r.Missing() {
			if len(only) == 0 || slices.Contains(only, p.Name) {
				missing, names = append(missing, p), append(names, p.Name)
			}
		}
		if len(missing) > 0 {
			title := fmt.Sprintf("building %s %s", strings.Join(names, ", "), r.Version)
			jobs = append(jobs, job{title, func() error { return programs.Build(r, missing) }})
		}
	}
	return jobs
}

func (w workshop) buildNeeds(only ...string) []debian.Need {
	for _, r := range w.programs {
		if r.CGO && len(only) == 0 && len(r.Missing()) > 0 {
			return machine.BuildNeeds()
		}
	}
	return nil
}

// runJobs runs jobs in their order, and prints the time that each took.
func runJobs(out io.Writer, jobs []job) error {
	for i, j := range jobs {
		fmt.Fprintf(out, "[%d/%d] %s ... ", i+1, len(jobs), j.title)
		started := time.Now()
		if err := j.run(); err != nil {
			fmt.Fprintln(out, "failed")
			return fmt.Errorf("%s: %w", j.title, err)
		}
		fmt.Fprintln(out, seconds(time.Since(started)))
	}
	return nil
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

func (a app) build() error {
	w, err := a.openNodeWorkshop()
	if err != nil {
		return err
	}
	return a.buildMissing(w)
}

// buildMissing says what it does on standard error: commands print on the other what they are asked for.
func (a app) buildMissing(w workshop, only ...string) error {
	if err := debian.Install(os.Stderr, w.buildNeeds(only...), !a.settings.NoInstall); err != nil {
		return err
	}
	return runJobs(os.Stderr, w.jobs(only...))
}

func (a app) program(args []string) error {
	if len(args) != 1 {
		return errors.New("name one program of the node")
	}
	w, err := a.openNodeWorkshop()
	if err != nil {
		return err
	}
	path := programs.Find(w.programs, args[0])
	if path == "" {
		return fmt.Errorf("the node has no program %q", args[0])
	}
	if err := a.buildMissing(w, args[0]); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

func (a app) assets(args []string) error {
	flags := flag.NewFlagSet("assets", flag.ContinueOnError)
	version := flags.String("version", "", "minor version of the API server, e.g. 1.33; the node's when empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	modules, err := programs.Catalogue("", false)
	if *version != "" {
		modules, err = programs.OlderAssets(*version)
	}
	if err != nil {
		return err
	}
	w, err := a.openWorkshop(modules)
	if err != nil {
		return err
	}
	if err := a.buildMissing(w, programs.Assets...); err != nil {
		return err
	}
	dir, err := programs.LinkAssets(w.programs, a.settings.Cache)
	if err != nil {
		return fmt.Errorf("collecting the programs for API server tests: %w", err)
	}
	fmt.Println(dir)
	return nil
}
