package guards

import "mvdan.cc/sh/v3/syntax"

const (
	fixDirect = "run the command itself, as a call of its own"
	fixOpaque = "use a program that is listed and starts no others"
)

// launchRules is the table of programs that can start other programs. It applies to shell calls under Allowlisted and to
// structured calls under Enforced. A program that isn't in the table counts as one that starts no others.
//
// To add a program, find out what it can start: programs that its arguments don't show (opaque), the words after its
// options (prefix), or another program by some options only (deniedOptions). A program that it always starts with
// arguments that the requester can't choose, as tar starts gzip, counts as a part of it.
func launchRules() []launchRule {
	rules := prefixRules()
	rules = append(rules, specialRules()...)
	rules = append(rules, optionRules()...)
	rules = append(rules, interpreterRules()...)
	return append(rules, opaqueRules()...)
}

// prefixRules are launchers that run the words after their own options and operands.
func prefixRules() []launchRule {
	return []launchRule{
		{names: "nice", reason: "runs what follows with another priority", check: prefix(optionSet{values: "n", flags: "0123456789", long: "adjustment="}, 0)},
		{names: "nohup", reason: "runs what follows without hang-ups", check: prefix(optionSet{}, 0)},
		{names: "timeout", reason: "runs what follows for a limited time", check: prefix(optionSet{flags: "vfp", values: "sk", long: "signal= kill-after= preserve-status foreground verbose"}, 1)},
		{names: "stdbuf", reason: "runs what follows with other buffers", check: prefix(optionSet{values: "ioe", long: "input= output= error="}, 0)},
		{names: "setsid", reason: "runs what follows in a session of its own", check: prefix(optionSet{flags: "cfw", long: "ctty fork wait"}, 0)},
		{names: "ionice", reason: "runs what follows with another priority for disks", check: prefix(optionSet{flags: "t", values: "cn", long: "class= classdata= ignore"}, 0)},
		{names: "chrt", reason: "runs what follows under another scheduler", check: prefix(optionSet{flags: "abfiorRv", long: "batch fifo idle other rr"}, 1)},
		{names: "taskset", reason: "runs what follows on some processors", check: prefix(optionSet{flags: "ac", long: "cpu-list all-tasks"}, 1)},
		{names: "time", reason: "runs and measures what follows", check: prefix(optionSet{flags: "apvq", values: "fo", long: "append portability verbose quiet format= output="}, 0)},
		{names: "flock", reason: "runs what follows while it holds a lock", check: prefix(optionSet{flags: "sexunoF", values: "wE", long: "shared exclusive unlock nonblock nb close no-fork timeout= wait= conflict-exit-code="}, 1)},
		{names: "sudo doas", reason: "runs what follows as another user", check: prefix(optionSet{flags: "nHkSb", values: "ug", long: "non-interactive set-home user= group="}, 0)},
		{names: "setpriv", reason: "runs what follows with other privileges", check: prefix(optionSet{long: "no-new-privs nnp clear-groups keep-groups init-groups reuid= regid="}, 0)},
		{names: "chronic ifne", reason: "runs what follows", check: prefix(optionSet{}, 0)},
		{names: "linux32 linux64", reason: "runs what follows as another machine type", check: prefix(optionSet{}, 0)},
	}
}

// specialRules are programs whose arguments are read by rules of their own.
func specialRules() []launchRule {
	return []launchRule{
		{names: "env", reason: "runs what follows with other variables", check: checkEnvProgram},
		{names: "xargs", reason: "runs what follows with arguments that it reads", check: checkXargs},
		{names: "find", reason: "runs commands by -exec, -execdir, -ok and -okdir", check: checkFind},
		{names: "bash", reason: "runs a script", check: checkShell(syntax.LangBash)},
		{names: "sh dash ash", reason: "runs a script", check: checkShell(syntax.LangBash, syntax.LangPOSIX)},
		{names: "awk gawk mawk nawk original-awk", reason: "runs commands by system, pipes and getline", check: checkAwk},
		{names: "sed gsed", reason: "runs commands by e and s///e", check: checkSed},
		{names: "tar gtar bsdtar", reason: "runs programs by options like --to-command and -I", check: checkTar},
		{names: "git", reason: "runs programs that options, configuration and hooks name", check: checkGit},
	}
}

// optionRules are programs that start others by some options only.
func optionRules() []launchRule {
	denied := func(d deniedOptions) launchCheck { return d.check }
	return []launchRule{
		{names: "sort gsort", reason: "compresses with another program", check: denied(deniedOptions{long: "compress-program", values: "kotST", flags: "bdfghiMnRrVcCmsuz", longFlags: "reverse unique numeric-sort"})},
		{names: "split gsplit", reason: "pipes into a filter", check: denied(deniedOptions{long: "filter", values: "abClnt"})},
		{names: "rg", reason: "preprocesses with another program", check: denied(deniedOptions{long: "pre hostname-bin", except: "pretty", values: "ABCEMTdefgjmrt"})},
		{names: "fd fdfind", reason: "runs commands on what it finds", check: denied(deniedOptions{long: "exec exec-batch", except: "exclude extension", letters: "xX", values: "EeStdcjo"})},
		{names: "ag ack delta", reason: "starts a pager", check: denied(deniedOptions{long: "pager"})},
		{names: "rsync", reason: "starts a remote shell", check: checkRemote(deniedOptions{long: "rsh rsync-path remote-option daemon config", letters: "eM", values: "fTB"})},
		{names: "diff gdiff", reason: "paginates with pr", check: denied(deniedOptions{long: "paginate", letters: "l", values: "CDFIUWxXS"})},
		{names: "sdiff diff3", reason: "starts another diff", check: denied(deniedOptions{long: "diff-program output", letters: "o"})},
		{names: "patch", reason: "runs ed scripts, unless the format of the patch is given", check: checkPatch},
		{names: "install ginstall", reason: "strips with another program", check: denied(deniedOptions{long: "strip-program", values: "gmotS"})},
		{names: "wget", reason: "starts a helper that asks for passwords", check: denied(deniedOptions{long: "use-askpass execute config", letters: "e", values: "aoOPQtTUwiBlADIRX"})},
		{names: "zip", reason: "tests with another program", check: denied(deniedOptions{long: "unzip-command test", letters: "T", values: "bnt"})},
		{names: "openssl", reason: "loads engines and providers", check: checkOpenssl},
		{names: "tcpdump", reason: "runs a program on each file", check: denied(deniedOptions{long: "postrotate-command", letters: "z", values: "BcCEFGijmMrsTVwWyQ"})},
		{names: "file", reason: "starts programs to look into compressed files", check: denied(deniedOptions{long: "uncompress uncompress-noreport", letters: "zZ", values: "eFfmP"})},
		{names: "gpg gpg2", reason: "starts helpers that options name", check: denied(deniedOptions{long: "agent-program dirmngr-program photo-viewer exec-path keyboxd-program options homedir pinentry-mode", values: "ruNo"})},
		{names: "cpio", reason: "starts a remote shell", check: checkRemote(deniedOptions{long: "rsh-command", values: "CEFHIMOR"})},
		{names: "ip", reason: "runs commands in namespaces", check: denied(deniedOptions{long: "batch", single: true, words: "netns netn net vrf exec"})},
		{names: "hostnamectl journalctl", reason: "starts a pager or a remote shell", check: denied(deniedOptions{long: "host machine", letters: "HM"})},
	}
}

// opaqueRules are programs whose purpose is to start others, in ways that their arguments don't show, or where the list of
// programs doesn't apply.
func opaqueRules() []launchRule {
	return []launchRule{
		opaqueRule("zsh ksh mksh oksh pdksh yash fish csh tcsh rc es rbash xonsh nu elvish busybox toybox",
			"runs a shell or applets that are not read as bash", "use bash -c 'commands'"),
		opaqueRule("vi vim vim.basic vim.tiny vim.nox nvim view vimdiff ex ed red emacs emacsclient nano pico rnano joe jed mcedit micro hx kak mc less lesspipe more most man mandb info w3m lynx links elinks mutt mail mailx vidir vipe sensible-editor sensible-pager sensible-browser editor pager bat batcat ranger nnn tig lazygit dialog whiptail",
			"runs commands that are typed into it, or an editor or pager", "use cat, head or sed -n to read"),
		opaqueRule("ssh scp sftp ssh-agent ssh-add ssh-keygen ssh-copy-id autossh sshpass sshfs ftp lftp tftp telnet mosh rsh rlogin rexec nc nc.openbsd nc.traditional ncat netcat socat websocat docker docker-compose podman nerdctl buildah skopeo ctr crictl runc crun vagrant ansible ansible-playbook terraform tofu packer salt fab hg svn bzr cvs",
			"runs programs on another machine, in a container, or ones that its options and configuration name", fixOpaque),
		opaqueRule("su runuser sg newgrp login pkexec sudoedit gosu su-exec setuidgid softlimit envdir envuidgid chpst s6-setuidgid s6-envdir execlineb chroot unshare nsenter proot fakeroot fakechroot bwrap firejail nsjail minijail0 capsh schroot debootstrap machinectl systemd-run systemd-nspawn run0 ld.so ldd tini tini-static dumb-init catatonit runit runsv runsvdir s6-svscan supervisord supervisorctl pm2 foreman honcho overmind",
			"runs programs with another root, user, loader or supervisor, where a name can mean something else", fixDirect),
		opaqueRule("watch parallel sem parset script scriptreplay scriptlive screen tmux byobu zellij dtach abduco at atd batch crontab anacron run-parts start-stop-daemon daemonize entr inotifywait fswatch watchexec nodemon reflex hyperfine multitime unbuffer autoexpect dbus-run-session dbus-launch dbus-send gdbus busctl xvfb-run xdg-open open x-terminal-emulator xterm setarch i386 x86_64 uname26 numactl prlimit cgexec cset mispipe pee unzipsfx catchsegv with-lock-ex lckdo flock-exec choom uclampset schedtool eatmydata libtool faketime datefudge proxychains proxychains4 torsocks tsocks socksify trickle rlwrap detach cpulimit timelimit expect",
			"runs commands by ways of its own", fixDirect),
		opaqueRule("direnv mise rtx asdf nvm fnm volta pyenv rbenv nodenv jenv sdk nix-shell nix-env nix-build guix devbox devenv micromamba mamba dotenvx doppler chamber aws-vault op envchain infisical sops vault envconsul consul-template",
			"runs programs with variables and paths of its own", fixDirect),
		opaqueRule("gdb gdbserver lldb strace ltrace perf valgrind rr bpftrace bpftool stap gcore ftrace trace-cmd sysdig uftrace heaptrack apitrace",
			"runs and controls programs", fixDirect),
		opaqueRule("nmap tshark tcpreplay convert magick identify mogrify montage composite display gs ghostscript tex latex pdflatex xelatex lualatex bibtex latexmk texi2dvi dvips groff troff pic eqn a2ps enscript rename prename file-rename fzf peco sk systemctl service init telinit shutdown logrotate rsyslogd cron udevadm ifup ifdown dhclient wpa_cli iptables-apply mount umount fusermount losetup modprobe insmod update-alternatives dpkg-reconfigure debconf run-mailcap compose pax star",
			"can run programs by commands or delegates of its own", fixOpaque),
	}
}

// interpreterRules are programs that run code, build files or packages. Text can't judge those: such a program passes when
// it is listed, and the policy warns that nothing holds what it starts.
func interpreterRules() []launchRule {
	rule := func(names, reason string) launchRule {
		return launchRule{names: names, reason: reason, interpreter: true, check: func(*checker, []word) *refusal { return nil }}
	}
	return []launchRule{
		rule("python pypy jython ipython ruby jruby irb perl php node nodejs deno bun ts-node tsx lua luajit tclsh wish guile R Rscript julia octave java groovy scala kotlin elixir iex erl ghci runghc ocaml sbcl clisp racket pwsh osascript jshell gnuplot m4 dc maxima swipl",
			"runs any code"),
		rule("make gmake cmake ctest ninja meson scons bazel gradle mvn ant rake just task tox nox invoke gcc g++ cc c++ clang clang++ cpp ld go gofmt cargo rustc rustup dotnet msbuild ghc cabal stack mix rebar3 sbt lein npm npx yarn pnpm pip pipx uv uvx poetry pipenv conda gem bundle composer cpan nix brew apt apt-get aptitude dpkg rpm yum dnf apk pacman snap",
			"runs what build files, packages or their scripts say"),
		rule("pytest tsc eslint prettier ruff black mypy flake8 pylint isort jest vitest mocha webpack vite rollup esbuild turbo nx lerna rubocop rspec phpunit javac pre-commit sphinx-build mkdocs gulp grunt tslint stylelint coverage hatch",
			"runs what the configuration and the plugins of a project say"),
		rule("sqlite3 psql mysql mariadb mongo mongosh redis-cli kubectl helm oc gh glab",
			"runs programs that its commands or its configuration name"),
	}
}

func opaqueRule(names, reason, fix string) launchRule {
	return launchRule{names: names, reason: reason, check: opaque(reason, fix)}
}
