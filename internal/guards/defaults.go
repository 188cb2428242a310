package guards

import (
	"time"

	"toolcall.dev/operator/api/v1alpha1"
)

// The built-in defaults hold for every field of a policy that is unset. They are functions, not
// variables, so that nothing can change them.

const (
	defaultTimeout  = 120 * time.Second
	defaultMaxTime  = 600 * time.Second
	defaultMaxScan  = 65536
	defaultMaxBytes = 65536

	// defaultKeepBytes and limitKeepBytes are of output.keepBytesPerStream.
	defaultKeepBytes = 8 << 20
	limitKeepBytes   = 1 << 30
	// defaultArtifactBytes and defaultAllArtifactBytes are of output.artifacts.
	defaultArtifactBytes    = 32 << 20
	defaultAllArtifactBytes = 128 << 20

	// limitScan bounds code.maxScanBytes, limitBytes output.maxBytesPerStream.
	limitScan  = 524288
	limitBytes = v1alpha1.MaxBytesPerStream
	// limitFileBytes bounds files.maxReadBytes and files.maxWriteBytes.
	limitFileBytes = 64 << 20
	// limitSeconds bounds both fields of timeouts: a week.
	limitSeconds = 604800
)

func defaultEnvBlocklist() []string {
	return []string{
		"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING",
	}
}

func defaultProtectedEnv() []string {
	return []string{
		"PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "LD_*",
		"GLIBC_TUNABLES", "PYTHONBREAKPOINT", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "NODE_OPTIONS",
		"NODE_PATH", "PERLLIB", "PERL5DB", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "GIT_SSH*",
		"GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_CONFIG*", "GIT_PAGER", "PAGER",
		"MANPAGER", "EDITOR", "VISUAL", "BROWSER", "LESSOPEN", "LESSCLOSE",
	}
}

// shellEnv are variables that a script under Allowlisted may not assign, whatever protectedEnv says: they change which
// program a name means to bash, or how bash parses the script.
func shellEnv() []string {
	return []string{
		"PATH", "IFS", "ENV", "PS4", "PROMPT_COMMAND", "SHELLOPTS", "BASH*", "LD_*", "GLIBC_TUNABLES",
		"POSIXLY_CORRECT", "EXECIGNORE", "histchars", "SRANDOM",
	}
}

// launchEnv are variables by which programs of the launch table start others. Calls may not set them where guards hold
// what programs start. Of a program with many variables all are denied but those of harmlessEnv.
func launchEnv() []string {
	return []string{
		"GIT_*", "SSH*", "GNUPG*", "GPG*", "TAR*", "GZIP", "BZIP*", "XZ_*", "ZSTD_*", "ZIP*", "UNZIP*", "RSH", "RSYNC_*", "WGET*", "SYSTEM_WGETRC", "CURL_HOME",
		"OPENSSL*", "AWK*", "GAWK*", "RIPGREP*", "FD_*", "BAT_*", "DELTA_*", "ACK*", "GREP_OPTIONS", "LESS*", "MORE", "MAN*", "PAGER", "SYSTEMD_*", "DIFF*", "PATCH_*", "POSIX*", "RCS*",
		"PYTHON*", "PERL*", "RUBY*", "BUNDLE_*", "GEM_*", "NODE_*", "NPM_*", "npm_*", "YARN_*", "JAVA*", "_JAVA*", "JDK_*", "JVM*", "CLASSPATH", "MAVEN*", "GRADLE*", "PHP*", "LUA*", "R_*",
		"CARGO_*", "RUSTC*", "RUSTFLAGS", "RUSTDOC*", "GOFLAGS", "GOENV", "GOROOT", "GOTOOL*", "GOPACKAGESDRIVER", "CC", "CXX", "CPP", "LD", "AR", "AS", "GCC_*", "COMPILER_PATH", "CMAKE_*", "MAKE*", "MFLAGS", "CTEST_*",
		"GCONV_PATH", "LOCPATH", "NLSPATH", "SHELL", "SUDO_*", "EDITOR", "VISUAL", "BROWSER", "FCEDIT", "SELECTED_EDITOR", "XDG_*", "HOME", "TERMINFO*", "TERMCAP", "INPUTRC", "MAILCAPS", "DOCKER_*", "KUBECONFIG", "KUBE_*", "GH_*", "MISE_*", "DIRENV_*",
	}
}

// harmlessEnv are the variables of launchEnv that start nothing.
func harmlessEnv() []string {
	return []string{
		"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE", "GIT_TERMINAL_PROMPT", "GIT_OPTIONAL_LOCKS",
		"GIT_LITERAL_PATHSPECS", "GIT_CEILING_DIRECTORIES", "GIT_ADVICE", "NODE_ENV", "NODE_DEBUG", "NODE_NO_WARNINGS", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONHASHSEED",
		"CARGO_TERM_COLOR", "CARGO_INCREMENTAL", "LESSCHARSET", "MANWIDTH", "PERL_UNICODE", "GH_REPO",
	}
}

func defaultLanguages() []string { return []string{"python"} }

func defaultDeniedModules() []string {
	return []string{"os", "subprocess", "socket", "sys", "ctypes", "shutil", "pickle", "marshal", "importlib"}
}

// networkModules are the modules that need code.networkAccess. No field of the policy changes the list.
func networkModules() []string {
	return []string{
		"socket", "requests", "urllib", "urllib2", "urllib3", "http", "httpx", "aiohttp", "websockets",
		"ftplib", "smtplib", "telnetlib",
	}
}
