package supervisor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	probeEvery       = 50 * time.Millisecond
	shutdownPatience = 3 * time.Second
)

type node struct {
	plan      Plan
	processes []*process
}

// Run is the whole life of the node. The starting side moves the network
// interface in and then sends one byte on start; an end of file without it
// means that nobody wants the node any more.
func Run(planFile string, start io.Reader) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("this command is started by \"up\" as the first process of its own namespaces")
	}
	plan, err := ReadPlan(planFile)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(start, make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the starting side: %w", err)
	}
	if err := setUp(plan); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := newReaper()
	go r.run(ctx)
	n := newNode(plan, r)
	if err := n.listen(ctx, plan.ControlSocket); err != nil {
		return err
	}
	for _, p := range n.processes {
		go p.run(ctx)
	}
	awaitSignal()
	n.shutDown()
	return nil
}

func setUp(p Plan) error {
	for _, variable := range p.Env {
		name, value, _ := strings.Cut(variable, "=")
		os.Setenv(name, value)
	}
	if err := setUpMounts(p); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(p.Hostname)); err != nil {
		return fmt.Errorf("naming the node: %w", err)
	}
	return setUpNetwork(p)
}

func awaitSignal() {
	signals := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
}

func newNode(plan Plan, r *reaper) *node {
	n := &node{plan: plan}
	for _, c := range plan.Components {
		n.processes = append(n.processes, &process{
			spec: c, env: plan.Env, logDir: plan.LogDir, reaper: r, ready: n.awaitReady,
			wanted: true, now: Status{Name: c.Name, State: StateWaiting, Since: time.Now()}, changed: make(chan struct{}),
		})
	}
	return n
}

func (n *node) find(name string) (*process, error) {
	for _, p := range n.processes {
		if p.spec.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("%q is no component of the node", name)
}

// awaitReady returns when all the named components answer.
func (n *node) awaitReady(ctx context.Context, names []string) error {
	for _, name := range names {
		p, err := n.find(name)
		if err != nil {
			return err
		}
		for probe(ctx, p.spec.Ready) != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(probeEvery):
			}
		}
	}
	return nil
}

func (n *node) statuses(ctx context.Context) []Status {
	all := make([]Status, len(n.processes))
	var wg sync.WaitGroup
	for i, p := range n.processes {
		wg.Go(func() {
			all[i] = p.status()
			all[i].Ready = all[i].PID > 0 && probe(ctx, p.spec.Ready) == nil
		})
	}
	wg.Wait()
	return all
}

// shutDown gives the components a moment; what is left dies with the namespace.
func (n *node) shutDown() {
	slog.Info("shutting down")
	for _, p := range n.processes {
		p.want(false)
		p.signal(syscall.SIGTERM)
	}
	ctx, cancel := context.WithTimeout(context.Background(), shutdownPatience)
	defer cancel()
	for _, p := range n.processes {
		p.awaitEnd(ctx, shutdownPatience)
	}
}
