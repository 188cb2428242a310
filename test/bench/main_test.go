package main

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]string{
		"calls":    "-n x;-only all;more;-nope",
		"operator": "-calls 1.5;-only hot;more;-nope",
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
		if err == nil || errors.Is(err, flag.ErrHelp) != help || !strings.Contains(out.String(), "operator") {
			t.Errorf("%q: %v\n%s", name, err, out)
		}
	}
}
