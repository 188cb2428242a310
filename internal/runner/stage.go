package runner

import (
	"context"
	"errors"
	"fmt"
	"os"

	"toolcall.dev/operator/internal/result"
	"toolcall.dev/operator/internal/runner/sandbox"
	"toolcall.dev/operator/internal/runner/sandbox/programs"
	"toolcall.dev/operator/internal/runner/sandbox/rules"
)

// ready is the stage for the next call whose rules list programs, if one was started ahead; support is what the node
// gives, if that is known. They need runMutex.
var (
	ready   *sandbox.Stage
	support *rules.Support
)

// Prepare starts the stage for the next call whose rules list programs, so that the call needn't wait for it, and returns
// what the node gives for calls with rules. A stage is a process: Prepare is for a supervisor that waits for a call, before
// the first one and between two. Another call ends the stage.
func Prepare() rules.Support {
	runMutex.Lock()
	defer runMutex.Unlock()
	err := startStage()
	programs.ReadAhead(os.Getenv("PATH"))
	if err != nil && support == nil {
		return *probe(nil)
	}
	return *support
}

// startStage has a stage ready, and finds out what the node gives, unless that is known.
func startStage() error {
	stage, err := takeStage()
	if err != nil {
		return err
	}
	if support == nil {
		support = probe(stage)
	}
	ready = stage
	return nil
}

// probe finds out what the node and the container's runtime give.
func probe(stage *sandbox.Stage) *rules.Support {
	s := sandbox.Probe(stage)
	s.Self = self()
	return &s
}

// takeStage returns the stage that was started ahead, or a new one.
func takeStage() (*sandbox.Stage, error) {
	if stage := ready; stage != nil {
		ready = nil
		return stage, nil
	}
	closeOnExec()
	return sandbox.NewStage()
}

// Discard ends the stage that was started ahead, if there is one.
func Discard() {
	runMutex.Lock()
	defer runMutex.Unlock()
	discardStage()
}

func discardStage() {
	if ready != nil {
		ready.Discard()
		ready = nil
	}
}

// prepareDomain makes the domain of a command; nil for one that nothing restricts.
func (r *run) prepareDomain(ctx context.Context) (*sandbox.Domain, error) {
	switch {
	case r.domain != nil:
		return r.domain, nil
	case r.cmd.Rules == nil && r.cmd.DenyNetwork:
		return sandbox.Offline(), nil
	case r.cmd.Rules == nil:
		return nil, nil
	}
	if err := knowSupport(); err != nil {
		return nil, err
	}
	domain, err := sandbox.Prepare(r.cmd.Rules, Variable(r.cmd.Env, "PATH"), *support)
	if unavailable, ok := errors.AsType[*sandbox.UnavailableError](err); ok {
		return nil, failed(result.IsolationUnavailable, fmt.Sprintf(
			"The command was not started, because its policy can't be enforced here: the node has no %s. Use a node that has it, or change the policy: set %s.", unavailable.Missing, support.WayOut(r.cmd.Rules)))
	}
	if err != nil {
		return nil, err
	}
	if err := r.askMultiCall(ctx, domain); err != nil {
		domain.Close()
		return nil, err
	}
	return domain, nil
}

// knowSupport finds out what the node gives, unless that is known.
func knowSupport() error {
	if support != nil {
		return nil
	}
	return startStage()
}

// giveUpNetwork takes the network from a command of which nobody has said anything about it, where its connections can't be held.
func (r *run) giveUpNetwork() error {
	if r.cmd.Network == nil || !r.cmd.Network.Rules.Implied || r.cmd.DenyNetwork {
		return nil
	}
	if err := knowSupport(); err != nil {
		return err
	}
	held := rules.Rules{Connections: true, Beside: r.cmd.Beside}
	r.noNetwork = support.Missing(&held)
	r.cmd.DenyNetwork = r.noNetwork != ""
	return nil
}

// startInStage starts a command in a stage, which becomes the leader of the tree. One that was started ahead may have ended since; a new
// one takes its place.
func (r *run) startInStage(c *sandbox.Start) error {
	isAhead := ready != nil
	err := r.execute(c)
	if isAhead && errors.Is(err, sandbox.ErrStageLost) {
		err = r.execute(c)
	}
	return err
}

func (r *run) execute(command *sandbox.Start) error {
	stage, err := takeStage()
	if err != nil {
		return err
	}
	r.beforeStart()
	r.before.stage = processorTime(stage.PID)
	r.inside, err = stage.Execute(command)
	if err == nil {
		r.tree = newTree(stage.PID, r.inside)
		return nil
	}
	if refusal := r.inside.Refusal(); refusal != "" {
		refused := failed(result.CommandNotFound, refusal)
		r.inside.Report(&refused.Outcome)
		return refused
	}
	return err
}

// wake makes the supervision look for the ends of children.
func (r *run) wake() {
	select {
	case r.children <- nil:
	default:
	}
}
