// Command testsum runs the stages of `make test`, one after another, and adds up what they come to.
//
// A stage is a command. When it is `go test -json`, its tests are counted, and only the output of those that
// fail is shown; any other command shows what it prints. Everything is kept in a log per stage. A signal ends
// the stage with all that it started.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const usage = `usage: testsum -logs FOLDER -stage NAME [-tests] -- COMMAND...
       testsum -logs FOLDER -summary

  -tests    the command is "go test -json ..."
`

type options struct {
	logs, stage    string
	tests, summary bool
	command        []string
}

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err == nil {
		return
	}
	if !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "testsum:", err)
	}
	os.Exit(1)
}

// errFailed says that a stage failed, which has been told already.
var errFailed = errors.New("failed")

func run(args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.summary {
		return summarize(o.logs, out)
	}
	return runStage(o, out)
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("testsum", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flags.StringVar(&o.logs, "logs", "", "")
	flags.StringVar(&o.stage, "stage", "", "")
	flags.BoolVar(&o.tests, "tests", false, "")
	flags.BoolVar(&o.summary, "summary", false, "")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.command = flags.Args()
	switch {
	case o.logs == "":
		return nil, errors.New("-logs is missing")
	case o.summary:
		return o, nil
	case o.stage == "" || filepath.Base(o.stage) != o.stage:
		return nil, fmt.Errorf("-stage %q: give a name that a file can have", o.stage)
	case len(o.command) == 0:
		return nil, errors.New("name the command to run")
	}
	return o, nil
}
