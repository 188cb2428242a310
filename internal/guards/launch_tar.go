package guards

import "strings"

func tarDenied() deniedOptions {
	return deniedOptions{
		long:    "to-command use-compress-program checkpoint-action info-script new-volume-script rsh-command rmt-command files-from",
		except:  "file",
		letters: "IFT",
		values:  "bfgCXHKLNV",
	}
}

// judgeTar refuses tar's options that name programs, also in the old style without a hyphen, lists of files,
// which can hold options, and archives on other machines.
func judgeTar(j *judge, words []word) *refusal {
	if len(words) > 1 && words[1].known && !strings.HasPrefix(words[1].text, "-") && strings.ContainsAny(words[1].text, "IFT") {
		return refuse(words[1], "the letters "+quote(words[1].text)+" make tar run another program, or read options from a file", "leave I, F and T out")
	}
	if refused := tarDenied().judge(j, words); refused != nil {
		return refused
	}
	return remoteArchive(words)
}

// remoteArchive refuses names like host:path, for which a remote shell is started.
func remoteArchive(words []word) *refusal {
	for i, arg := range words[1:] {
		text, attached := strings.CutPrefix(arg.text, "--file=")
		isArchive := attached || i > 0 && words[i].known && strings.HasSuffix(words[i].text, "f") && !strings.HasPrefix(words[i].text, "./") ||
			i > 0 && words[i].is("--file")
		if !isArchive {
			continue
		}
		if isRemote(text) || !arg.known && text == "" {
			return refuse(arg, "tar may start a remote shell for the archive "+quote(arg.source), "put ./ before a name on this machine")
		}
	}
	for _, arg := range words[1:] {
		if at := strings.IndexByte(arg.text, 'f'); strings.HasPrefix(arg.text, "-") && !strings.HasPrefix(arg.text, "--") && at > 0 && isRemote(arg.text[at+1:]) {
			return refuse(arg, "tar may start a remote shell for the archive "+quote(arg.source), "put ./ before a name on this machine")
		}
	}
	return nil
}

// isRemote says whether a name has a colon before any slash.
func isRemote(name string) bool {
	colon := strings.IndexByte(name, ':')
	slash := strings.IndexByte(name, '/')
	return colon >= 0 && (slash < 0 || colon < slash)
}

// judgeRemote refuses options as usual, and operands that name another machine.
func judgeRemote(d deniedOptions) launchJudge {
	return func(j *judge, words []word) *refusal {
		if refused := d.judge(j, words); refused != nil {
			return refused
		}
		for _, arg := range words[1:] {
			if strings.HasPrefix(arg.text, "rsync://") || isRemote(arg.text) || !arg.known && !strings.ContainsAny(arg.text, "/-") {
				return refuse(arg, quote(words[0].text)+" may start a remote shell for "+quote(arg.source), "put ./ before a name on this machine")
			}
		}
		return nil
	}
}
