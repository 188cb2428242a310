package tools

import (
	"fmt"
	"strings"

	"toolcall.dev/operator/internal/bounds"
)

// Facts are what the descriptions of the tools say about the environment at hand. The zero value makes descriptions that are
// true everywhere.
type Facts struct {
	// Known says that the environments of the namespace are known.
	Known bool
	// Environment is the default one, empty if there is none.
	Environment string
	// Keeps are the directories of the default environment whose files outlive a call.
	Keeps []string
	// Conversation says that calls run in the session of the conversation unless they say otherwise.
	Conversation bool
	// Connected says that the client has a connection with whose end its sessions end.
	Connected bool
}

// maxPlaces and maxName bound what of the environment is in each description, in bytes.
const (
	maxPlaces = 60
	maxName   = 40
)

// files says what becomes of the files of a command.
func (f *Facts) files() string {
	if f.Conversation {
		return "Calls run in this conversation's session unless they name another session or an environment: files in the workspace, the home " +
			"directory and /tmp stay until it ends, " + f.exceptLasting()
	}
	return f.without() + " Calls with the same session share files."
}

// without says what becomes of the files of a call without a session.
func (f *Facts) without() string {
	switch {
	case !f.Known:
		return "Without session it runs in a new pod, and its files are gone after it, except on volumes that list_environments shows."
	case f.Environment == "":
		return "There is no default environment: pass session, or environment from list_environments. Files of a call without session are gone after it, " +
			"except on volumes that list_environments shows."
	case len(f.Keeps) > 0:
		return fmt.Sprintf("Without session it runs in a new pod of the environment %s: only files below %s last.", f.name(), f.places())
	default:
		return fmt.Sprintf("Without session it runs in a new pod of the environment %s, and its files are gone after it.", f.name())
	}
}

// exceptLasting completes a sentence about files that end with their session: the session's pod has the volumes of its environment,
// whichever that is.
func (f *Facts) exceptLasting() string {
	const shown = "except on volumes that list_environments shows"
	if len(f.Keeps) == 0 {
		return shown + "."
	}
	return fmt.Sprintf("%s, such as those at %s of the environment %s.", shown, f.places(), f.name())
}

// filesOfTools says which files a file tool reaches.
func (f *Facts) filesOfTools() string {
	if f.Conversation {
		return "It reaches the files of this conversation's session, unless it names another session or an environment."
	}
	switch {
	case !f.Known, f.Environment == "":
		return "Pass the session whose files you mean: a new pod has only files on volumes that list_environments shows."
	case len(f.Keeps) > 0:
		return fmt.Sprintf("Pass the session whose files you mean, unless they are below %s of the environment %s.", f.places(), f.name())
	default:
		return "Pass the session whose files you mean: in a new pod, no earlier call left anything."
	}
}

// name is the default environment's.
func (f *Facts) name() string { return bounds.Text(f.Environment, maxName) }

// places are the directories whose files last.
func (f *Facts) places() string { return bounds.Text(strings.Join(f.Keeps, ", "), maxPlaces) }

// endOfSessions says when the sessions of start_session end by themselves.
func (f *Facts) endOfSessions() string {
	if f.Conversation {
		return "You need it only for files apart from those of the conversation's own session."
	}
	if f.Connected {
		return "It ends with this connection, too."
	}
	return "It doesn't end with your connection, but when it is idle."
}
