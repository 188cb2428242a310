package reply

import (
	"fmt"
	"strings"
)

// MaxEnvironments bounds the list of environments.
const MaxEnvironments = 200

// Environment is one entry of the list.
type Environment struct {
	Name       string   `json:"name"`
	Default    bool     `json:"default"`
	Ready      bool     `json:"ready"`
	Message    string   `json:"message,omitempty"`
	Image      string   `json:"image"`
	WorkingDir string   `json:"working_dir,omitempty"`
	Languages  []string `json:"languages,omitempty"`
	Keeps      []string `json:"keeps,omitempty"`
	// Policy is the name of its policy, empty if it names none: then the cluster's default policy applies, or the built-in defaults.
	Policy string `json:"-"`
	// Allowed is what its policy lets calls do, nil if it names none, or the requester may not read the policy.
	Allowed *Allowed `json:"allowed,omitempty"`
}

// List is the beginning of a list of environments as text for a model, of at most room characters, and how many it has. more says that
// there are more than those.
func List(environments []Environment, more bool, namespace string, room int) (text string, listed int) {
	if len(environments) == 0 {
		return fmt.Sprintf("There are no environments in namespace %s: calls can't run there until an administrator creates one.", namespace), 0
	}
	var b strings.Builder
	for i := range environments {
		var one strings.Builder
		environments[i].write(&one)
		if room -= length(one.String()); room < 0 && i > 0 {
			more = true
			break
		}
		b.WriteString(one.String())
		listed++
	}
	if more {
		fmt.Fprintf(&b, "Only the first %d environments are listed.\n", listed)
	}
	return b.String(), listed
}

func (e *Environment) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s: image %s", e.Name, e.Image)
	if e.WorkingDir != "" {
		fmt.Fprintf(b, ", starts in %s", e.WorkingDir)
	}
	if len(e.Languages) > 0 {
		fmt.Fprintf(b, ", additional languages %s", strings.Join(e.Languages, ", "))
	}
	if len(e.Keeps) > 0 {
		fmt.Fprintf(b, ", files below %s last", strings.Join(e.Keeps, ", "))
	}
	if e.Default {
		b.WriteString(", the default")
	}
	if !e.Ready {
		fmt.Fprintf(b, ", not ready: %s", e.Message)
	}
	b.WriteString("\n  " + e.allows() + "\n")
}

// allows says in one line what calls may do.
func (e *Environment) allows() string {
	switch {
	case e.Allowed != nil:
		return e.Allowed.text()
	case e.Policy == "":
		return "it names no policy, so the cluster's default policy applies, or the built-in defaults if there is none: a denial says what would pass"
	default:
		return "what it allows isn't visible to you: a denial says what would pass"
	}
}
