package main

import (
	"errors"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"toolcall.dev/operator/test/bench/figures"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]string{
		"calls": "-n -1;-n 10001;-n x;-bursts 0;-bursts 10,x;-bursts 101;-rates 0;-rates NaN;-rates 1001;-rate-seconds 0;-pool 0;" +
			"-only all;-kinds Cron;-max-job-ratio -1;-session-parts all;-sessions 0;-session-loops 17;-session-seconds 0;-idle-sessions 0;-session-n 9;more;-nope",
		"operator":  "-calls 0;-calls 1.5;-in-flight 0;-pool 201;-finished -1;-output-bytes -1;-probes 0;-qps -1;-qps Inf;-idle x;-only hot;more;-nope",
		"footprint": "-finished -1;-output-bytes 262145;-rest 0;-samples 0;-only floor;more;-nope",
	} {
		for args := range strings.SplitSeq(wrong, ";") {
			all := append([]string{name}, strings.Fields(args)...)
			if _, err := parse(commandNamed(name), all, new(strings.Builder)); err == nil {
				t.Errorf("%q is accepted", all)
			}
		}
		if _, err := parse(commandNamed(name), []string{name}, new(strings.Builder)); err != nil {
			t.Errorf("%s without flags: %v", name, err)
		}
	}
}

func TestACommandThatIsNotThereIsAnsweredWithThoseThatAre(t *testing.T) {
	t.Parallel()
	for name, help := range map[string]bool{"": false, "nothing": false, "-h": true, "--help": true} {
		out := new(strings.Builder)
		err := run(t.Context(), strings.Fields(name), out, out)
		if err == nil || errors.Is(err, flag.ErrHelp) != help || !strings.Contains(out.String(), "footprint") {
			t.Errorf("%q: %v\n%s", name, err, out)
		}
	}
}

func TestBareWritesNeedColdCalls(t *testing.T) {
	t.Parallel()
	out := new(strings.Builder)
	if err := run(t.Context(), []string{"operator", "-only", "bare,warm"}, out, out); err == nil || !strings.Contains(err.Error(), "add cold") {
		t.Errorf("got %v", err)
	}
}

func TestAnEarlierRunIsPrintedFromItsFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"calls", "operator", "footprint"} {
		file := filepath.Join(t.TempDir(), name, "saved.json")
		report := commandNamed(name).Report()
		report.Head().Begin("the command " + name)
		if err := figures.Save(file, report); err != nil {
			t.Fatal(err)
		}
		out := new(strings.Builder)
		if err := run(t.Context(), []string{name, "-from", file}, out, out); err != nil || !strings.Contains(out.String(), "the command "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if err := run(t.Context(), []string{name, "-from", file + "x"}, out, out); err == nil {
			t.Errorf("%s prints a file that isn't there", name)
		}
	}
}
