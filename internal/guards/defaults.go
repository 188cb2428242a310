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
