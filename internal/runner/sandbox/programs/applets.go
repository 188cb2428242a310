package programs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"toolcall.dev/operator/internal/result"
)

// A multi-call program can run the programs that it is, its applets, in its own process: Debian's busybox-static does, and
// toybox. Nothing is executed then, so that no gate sees it. Which kind a program is only shows when it starts something, so
// it is asked: it is run as a shell, xargs, find and env, in a domain in which nothing else may be executed, and told to start
// an applet that prints a mark. If the mark is printed, the applet ran inside.

const (
	// appletMark is printed by an applet, on a line of its own. In no argument it stands alone but where an applet repeats it.
	appletMark = "toolcall-applet"
	// scriptEnd is printed by the shell that was asked, when it has tried everything.
	scriptEnd = "toolcall-end"
)

// starters are applets that start others, with the arguments with which they do.
var starters = [][]string{
	{"xargs", "echo", appletMark},
	{"find", "/dev/null", "-exec", "echo", appletMark, ";"},
	{"env", "echo", appletMark},
}

// shells are applets that start others, and run scripts.
var shells = []string{"sh", "ash"}

// shellApplets are what a shell is told to start: applets that no shell has as commands of its own, of both kinds that
// busybox may run without an execve.
const shellApplets = "basename /x/" + appletMark + "; dirname " + appletMark + "/x; expr " + appletMark

// fileVersion is a file with the content and the names that it has.
type fileVersion struct {
	fileID
	changed unix.Timespec
}

// maxAnswers bounds how many answers are remembered.
const maxAnswers = 256

// answers are those of the files that were asked: whether they run applets inside. It has no lock: one domain is prepared at a time.
var answers = map[fileVersion]bool{}

// ask runs a command that may execute one program, by the names of its shell and starters, and nothing else. It returns how the command
// ended.
type ask func(program string, argv []string) (result.Outcome, error)

// AskMultiCall returns which of the listed multi-call programs run their applets without executing them: nothing holds what they run. Each
// file is asked once in this process. One that doesn't show what it does counts as one that does: it could run anything unseen.
func (l *List) AskMultiCall(ask ask) (unheld []string, err error) {
	for _, p := range l.files {
		if !p.isMany {
			continue
		}
		inside, known := answers[p.version]
		if !known {
			if inside, known, err = p.runsInside(ask); err != nil {
				return nil, fmt.Errorf("ask %q whether it executes its applets: %w", p.path, err)
			}
			if known {
				remember(p.version, inside)
			}
		}
		if inside {
			l.unheld = append(l.unheld, p.path)
		}
	}
	slices.Sort(l.unheld)
	return l.unheld, nil
}

func remember(v fileVersion, inside bool) {
	if len(answers) == maxAnswers {
		clear(answers)
	}
	answers[v] = inside
}

// runsInside asks a program whether it runs its applets inside, until it has shown it. A program that
// shows nothing counts as one that does.
func (p *program) runsInside(ask ask) (inside, isShown bool, err error) {
	questions := p.questions()
	isShown = len(questions) == 0 // none of its names starts anything
	for _, argv := range questions {
		o, err := ask(p.path, argv)
		if err != nil {
			return false, false, err
		}
		lines := strings.Split(string(o.Stdout.Head)+string(o.Stdout.Tail), "\n")
		switch {
		case slices.Contains(lines, appletMark):
			return true, true, nil
		case slices.Contains(lines, scriptEnd):
			return false, true, nil
		case len(o.Refused) > 0 && o.Started:
			isShown = true
		}
	}
	return !isShown, isShown, nil
}

// questions are the commands by which a program is asked. The first that is answered in full is enough: the shell's, which
// tries the other applets as well.
func (p *program) questions() [][]string {
	if !p.isByArgumentAlone() && isMultiCallName(filepath.Base(p.path)) {
		// The single program of coreutils, GNU's and uutils', has none that start others but env and its like.
		return [][]string{
			{p.path, "--coreutils-prog=env", "echo", appletMark},
			{p.path, "env", "echo", appletMark},
		}
	}
	script := shellApplets
	var others, questions [][]string
	for _, starter := range starters {
		if command := p.command(starter...); command != nil {
			others = append(others, command)
			script += "; " + quoteWords(command) + " </dev/null"
		}
	}
	script += "; echo " + scriptEnd
	for _, shell := range shells {
		if command := p.command(shell, "-c", script); command != nil {
			questions = append(questions, command)
		}
	}
	return append(questions, others...)
}

// command is a command of one of the program's names; nil if it has no such name.
func (p *program) command(words ...string) []string {
	switch {
	case isMultiCallName(filepath.Base(p.path)):
		return append([]string{p.path}, words...)
	case slices.Contains(p.calls, words[0]):
		return append([]string{filepath.Join(filepath.Dir(p.path), words[0])}, words[1:]...)
	default:
		return nil
	}
}

// quoteWords writes words for a shell.
func quoteWords(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// AllowStarters lets the listed programs be executed by the names of their shells and starters alone, as AskMultiCall demands.
func (l *List) AllowStarters() {
	names := map[string]bool{}
	for _, shell := range shells {
		names[shell] = true
	}
	for _, starter := range starters {
		names[starter[0]] = true
	}
	for _, p := range l.files {
		p.multiCall, p.names = true, names
	}
}
