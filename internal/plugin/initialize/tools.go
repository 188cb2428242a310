package initialize

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"toolcall.dev/operator/internal/guards"
)

const (
	toolFileRead  = guards.ToolFileRead
	toolFileWrite = guards.ToolFileWrite
	toolShell     = "bash"
	// maxTools bounds how many tools are named.
	maxTools = 64
)

// interpreters are the languages that are tools by their name, with the program that runs them.
var interpreters = map[string]string{"python": "python3", "javascript": "node", "perl": "perl", "ruby": "ruby"}

// programName is what a program is called in a list; a path would have to be known to exist in the image.
var programName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}$`)

// toolset is what an agent may use.
type toolset struct {
	shell bool
	// programs are those that may run, languages those of code, and files the tools of file actions.
	programs, languages, files []string
}

// toolsetOf reads names of tools. Utilities come with the shell.
func toolsetOf(names, utilities []string) (s toolset, err error) {
	if len(names) > maxTools {
		return s, fmt.Errorf("--tools: %d names are too many: use at most %d", len(names), maxTools)
	}
	for _, name := range names {
		if err := s.add(strings.TrimSpace(name), utilities); err != nil {
			return s, err
		}
	}
	for _, list := range []*[]string{&s.programs, &s.languages, &s.files} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return s, nil
}

func (s *toolset) add(name string, utilities []string) error {
	program, isLanguage := interpreters[name]
	switch {
	case name == toolFileRead || name == toolFileWrite:
		s.files = append(s.files, name)
	case !programName.MatchString(name) || strings.HasPrefix(name, "file."):
		return fmt.Errorf("--tools: %q is no tool: use bash for shell lines, python, javascript, ruby or perl, file.read, file.write, or the bare name of a program", name)
	case isLanguage:
		s.languages, s.programs = append(s.languages, name), append(s.programs, program)
	case name == toolShell:
		s.shell = true
		s.programs = append(append(s.programs, "bash", "sh"), utilities...)
	default:
		s.programs = append(s.programs, name)
	}
	return nil
}

// names are the tools as access reviews ask for them.
func (s *toolset) names() []string {
	all := slices.Concat(s.programs, s.languages, s.files)
	slices.Sort(all)
	return slices.Compact(all)
}

// main is the program that a first call runs: one that the flags name rather than a utility, where there is one.
func (s *toolset) main() string {
	at := slices.IndexFunc(s.programs, func(name string) bool { return !slices.Contains(utilities, name) })
	return s.programs[max(0, at)]
}

// unlisted is a program that may not run.
func (s *toolset) unlisted() string {
	for _, name := range []string{"curl", "wget", "nc", "ssh"} {
		if !slices.Contains(s.programs, name) {
			return name
		}
	}
	return "unlisted-program"
}
