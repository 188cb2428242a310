package result

import "fmt"

// LeftRunningLine says that what the command left running has ended with it, and how to keep it; empty when it left nothing.
func (o *Outcome) LeftRunningLine() string {
	switch {
	case o.LeftRunning < 1:
		return ""
	case o.LeftRunning == 1:
		return "1 process that the command left running was ended with it." + keepRunning
	default:
		return fmt.Sprintf("%d processes that the command left running were ended with it.", o.LeftRunning) + keepRunning
	}
}

const keepRunning = " What is to run on needs a call of its own, in a session, with background: true, " +
	"as a command that doesn't return: without & or nohup."
