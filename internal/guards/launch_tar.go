package guards

import "strings"

func tarDenied() deniedOptions {
	return deniedOptions{
		long:    "to-command use-compress-program checkpoint-action info-script new-volume-script rsh-command rmt-command files-from multi-volume",
		except:  "file",
		letters: "IFTM",
		values:  "bfgCXHKLNV",
	}
}

// checkTar refuses options that name programs, also in the old style without a hyphen; lists of files, which can hold
// options; and archives on other machines.
func checkTar(c *checker, words []word) *refusal {
	if len(words) > 1 && !words[1].known {
		return refuse(words[1], "the letters "+quote(words[1].source)+" of tar are only known at run time", "write the letters out")
	}
	if len(words) > 1 && !strings.HasPrefix(words[1].text, "-") && strings.ContainsAny(words[1].text, "IFTM") {
		return refuse(words[1], "the letters "+quote(words[1].text)+" make tar run another program, or read options from a file", "leave I, F, M and T out")
	}
	if refused := tarDenied().check(c, words); refused != nil {
		return refused
	}
	for _, arg := range words[1:] {
		if name := archiveName(arg.text); isRemote(name) || !arg.known && !strings.Contains(name, "/") {
			return refuse(arg, "tar may start a remote shell for the archive "+quote(arg.source), "put ./ before a name on this machine")
		}
	}
	return nil
}

// archiveName returns what could be the name of an archive in an argument.
func archiveName(text string) string {
	if name, ok := strings.CutPrefix(text, "--"); ok {
		_, name, _ = strings.Cut(name, "=")
		return name
	}
	if at := strings.IndexByte(text, 'f'); strings.HasPrefix(text, "-") && at > 0 {
		return text[at+1:]
	}
	return text
}

// isRemote reports whether a name has a colon before any slash.
func isRemote(name string) bool {
	colon := strings.IndexByte(name, ':')
	slash := strings.IndexByte(name, '/')
	return colon >= 0 && (slash < 0 || colon < slash)
}

// checkRemote refuses denied options, and operands that name another machine.
func checkRemote(d deniedOptions) launchCheck {
	return func(c *checker, words []word) *refusal {
		if refused := d.check(c, words); refused != nil {
			return refused
		}
		for _, arg := range words[1:] {
			if strings.HasPrefix(arg.text, "rsync://") || isRemote(arg.text) || !arg.known && !strings.Contains(arg.text, "/") {
				return refuse(arg, quote(words[0].text)+" may start a remote shell for "+quote(arg.source), "put ./ before a name on this machine")
			}
		}
		return nil
	}
}

// checkPatch requires the format of the patch: patch takes a text for a script of ed otherwise, and runs ed.
func checkPatch(c *checker, words []word) *refusal {
	if refused := (deniedOptions{long: "ed get", letters: "eg", values: "BdDFioprVxYz"}).check(c, words); refused != nil {
		return refused
	}
	for _, arg := range words[1:] {
		if arg.is("-u") || arg.is("-c") || arg.is("--unified") || arg.is("--context") {
			return nil
		}
	}
	return refuse(words[0], "patch runs ed if what it reads is a script of ed", "give the format as an option of its own, as in patch -u -p1")
}

// checkOpenssl refuses what loads engines and providers, and commands that are read from the input.
func checkOpenssl(c *checker, words []word) *refusal {
	if len(words) == 1 {
		return refuse(words[0], "openssl without a command reads commands from its input", "give the command as an argument")
	}
	return deniedOptions{long: "engine provider provider-path config", single: true, words: "engine"}.check(c, words)
}
