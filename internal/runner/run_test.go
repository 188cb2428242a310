package runner

import (
	"testing"

	"toolcall.dev/operator/internal/result"
)

func TestExitCodesAndStreams(t *testing.T) {
	for name, c := range map[string]struct {
		cmd  Command
		want want
	}{
		"both streams apart":       {bash("echo out; echo err >&2"), completed("out\n", "err\n")},
		"nothing written":          {program("true"), completed("", "")},
		"exit 1":                   {bash("exit 1"), want{reason: result.NonZeroExit, exit: result.Exit(1)}},
		"exit 42":                  {bash("exit 42"), want{reason: result.NonZeroExit, exit: result.Exit(42)}},
		"exit 126 of its own":      {bash("exit 126"), want{reason: result.NonZeroExit, exit: result.Exit(126)}},
		"exit 127 of its own":      {bash("nosuchcommand"), want{reason: result.NonZeroExit, exit: result.Exit(127)}},
		"exit 137 of its own":      {bash("exit 137"), want{reason: result.NonZeroExit, exit: result.Exit(137)}},
		"exit 255":                 {bash("exit 255"), want{reason: result.NonZeroExit, exit: result.Exit(255)}},
		"a signal":                 {bash("kill -KILL $$"), want{reason: result.Signaled, signal: "SIGKILL"}},
		"a signal without a name":  {bash("kill -40 $$"), want{reason: result.Signaled, signal: "SIG40"}},
		"arguments as they are":    {program("printf", "%s|", "a b", `"q'`, "x\ny", "ä€", "$HOME", "*"), completed("a b|\"q'|x\ny|ä€|$HOME|*|", "")},
		"its environment, exactly": {program("env"), completed("PATH="+testPath+"\nHOME=/\n", "")},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, runIt(t, t.Context(), c.cmd))
		})
	}
}
