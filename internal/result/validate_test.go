package result

import (
	"strings"
	"testing"
)

func TestValidateKnowsWhatGoesTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome Outcome
		ok      bool
	}{
		"completed":                    {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0)}, true},
		"completed with another code":  {Outcome{Reason: Completed, Started: true, ExitCode: Exit(1)}, false},
		"completed without a start":    {Outcome{Reason: Completed, ExitCode: Exit(0)}, false},
		"failed with 255":              {Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(255)}, true},
		"failed with 256":              {Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(256)}, false},
		"timed out":                    {Outcome{Reason: TimedOut, Started: true, Signal: "SIGTERM"}, true},
		"timed out with a code":        {Outcome{Reason: TimedOut, Started: true, ExitCode: Exit(0)}, false},
		"a signal":                     {Outcome{Reason: Signaled, Started: true, Signal: "SIGRTMIN+1"}, true},
		"a signal that isn't one":      {Outcome{Reason: Signaled, Started: true, Signal: "sigkill"}, false},
		"a signal beside a code":       {Outcome{Reason: NonZeroExit, Started: true, ExitCode: Exit(3), Signal: "SIGKILL"}, false},
		"memory, the process itself":   {Outcome{Reason: OOMKilled, Started: true, Signal: "SIGKILL"}, true},
		"memory with a code":           {Outcome{Reason: OOMKilled, Started: true, ExitCode: Exit(137)}, false},
		"completed without a code":     {Outcome{Reason: Completed, Started: true}, false},
		"completed, and never started": {Outcome{Reason: Completed}, false},
		"a signal without a start":     {Outcome{Reason: Signaled, Signal: "SIGKILL"}, false},
		"a file with a signal":         {Outcome{Reason: CancelRequested, Started: true, Signal: "SIGKILL", File: &File{}}, false},
		"not found":                    {Outcome{Reason: CommandNotFound}, true},
		"not found with a code":        {Outcome{Reason: CommandNotFound, Started: true, ExitCode: Exit(127)}, false},
		"not found with output":        {Outcome{Reason: CommandNotFound, Stdout: Stream{Bytes: 1}}, false},
		"cancelled before the start":   {Outcome{Reason: CancelRequested}, true},
		"cancelled while running":      {Outcome{Reason: CancelRequested, Started: true}, true},
		"no reason":                    {Outcome{}, false},
		"a guard's reason":             {Outcome{Reason: "ShellDisabled"}, false},
		"a message too long":           {Outcome{Reason: CommandNotFound, Message: strings.Repeat("x", MaxMessage+1)}, false},
		"a negative duration":          {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), DurationMS: -1}, false},
		"a refusal too long":           {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), Refusal: strings.Repeat("x", MaxMessage+1)}, false},
		"output, and nothing started":  {Outcome{Reason: CommandNotFound, Output: Stream{Bytes: 1}}, false},
		"a directory too long":         {Outcome{Reason: CommandNotFound, WorkingDir: strings.Repeat("x", MaxWorkingDir+1)}, false},
		"a file":                       {Outcome{Reason: Completed, Started: true, File: &File{}}, true},
		"no file":                      {Outcome{Reason: FileNotFound, Started: true, File: &File{}}, true},
		"a file with a code":           {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), File: &File{}}, false},
		"a file that wasn't begun":     {Outcome{Reason: FileNotFound, File: &File{}}, false},
		"a file's reason without one":  {Outcome{Reason: FileNotFound, Started: true}, false},
		"a process's reason of a file": {Outcome{Reason: Signaled, Started: true, File: &File{}}, false},
		"a file that was stopped":      {Outcome{Reason: SessionEnded, Started: true, File: &File{}}, true},
		"the longest path":             {Outcome{Reason: Completed, Started: true, File: &File{Path: strings.Repeat("\uFFFD", MaxFilePath)}}, true},
		"a path of too many letters":   {Outcome{Reason: Completed, Started: true, File: &File{Path: strings.Repeat("x", MaxFilePath+1)}}, false},
		"a path that isn't text":       {Outcome{Reason: Completed, Started: true, File: &File{Path: "\xff"}}, false},
		"more kept than may be": {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0),
			Stdout: Stream{Head: make([]byte, MaxStreamBytes+1), Bytes: MaxStreamBytes + 1}}, false},
		"more kept than written": {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0),
			Stderr: Stream{Head: []byte("ab"), Bytes: 1}}, false},
		"a hash that isn't the output's": {Outcome{Reason: Completed, Started: true, ExitCode: Exit(0),
			Stderr: Stream{Head: []byte("ab"), Bytes: 2, SHA256: strings.Repeat("0", 64)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.outcome.Validate(); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
