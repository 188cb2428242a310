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

	// limitScan bounds code.maxScanBytes, limitBytes output.maxBytesPerStream.
	limitScan  = 524288
	limitBytes = v1alpha1.MaxBytesPerStream
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
		"GLIBC_TUNABLES", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "NODE_OPTIONS",
		"NODE_PATH", "PERL5LIB", "PERL5OPT", "RUBYLIB", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_SSH*",
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

// launchEnv are variables by which programs of the launch table start others. Calls may not set them where their
// programs are restricted to a list.
func launchEnv() []string {
	return []string{
		"GCONV_PATH", "SHELL", "GIT_ALLOW_PROTOCOL", "GIT_ASKPASS", "GIT_COMMON_DIR", "GIT_CONFIG*", "GIT_DIR", "GIT_EDITOR", "GIT_EXEC_PATH",
		"GIT_EXTERNAL_DIFF", "GIT_PAGER*", "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH*",
		"GIT_TEMPLATE_DIR", "GIT_TRACE2*", "SSH_ASKPASS*",
		"TAR_OPTIONS", "TAR_RSH", "RSH", "RSYNC_RSH", "RSYNC_CONNECT_PROG", "RIPGREP_CONFIG_PATH", "MAKEFLAGS",
		"OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "ZIPOPT", "WGETRC", "AWKPATH", "AWKLIBPATH",
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
