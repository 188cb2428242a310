package result

import "testing"

func TestOnlyACommandTakesWhatCanBeTaken(t *testing.T) {
	t.Parallel()
	command := Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), Usage: mostUsage()}
	if err := command.Validate(); err != nil {
		t.Fatal(err)
	}
	negative := command
	negative.Usage = mostUsage()
	*negative.Usage.MaxRSSBytes = -1
	for name, o := range map[string]*Outcome{
		"less than nothing":     &negative,
		"what never started":    {Reason: CommandNotFound, Usage: mostUsage()},
		"an operation on files": {Reason: Completed, Started: true, File: &File{}, Usage: mostUsage()},
	} {
		if o.Validate() == nil {
			t.Errorf("%s has a usage", name)
		}
		if o.Shorten(); o.Validate() != nil {
			t.Errorf("%s can't be corrected", name)
		}
	}
	if negative.Usage.MaxRSSBytes != nil || negative.Usage.CPUMilliseconds == nil {
		t.Errorf("got %+v", negative.Usage)
	}
}
