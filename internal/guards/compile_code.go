package guards

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
)

func (p *Policy) compileCode(spec *v1alpha1.ExecutionPolicySpec) error {
	code := spec.Code
	if code == nil {
		code = &v1alpha1.CodePolicy{}
	}
	p.code.enabled = code.Enabled == nil || *code.Enabled
	p.code.network, p.code.noNetwork = codeHasNetwork(spec, code), "code.networkAccess is false"
	if spec.Network != nil && spec.Network.Mode == v1alpha1.NetworkNone {
		p.code.noNetwork = "network.mode is None"
	}
	if err := p.compileLanguages(code); err != nil {
		return err
	}
	if err := p.compileModules(code); err != nil {
		return err
	}
	return p.compileCodeBounds(code)
}

func (p *Policy) compileLanguages(code *v1alpha1.CodePolicy) error {
	languages := defaultLanguages()
	if code.Languages != nil {
		languages = slices.Clone(code.Languages)
	}
	for i, language := range languages {
		if language == "" || strings.ContainsFunc(language, isSpaceOrControl) {
			return fmt.Errorf("spec.code.languages[%d]: %s is not a valid language name: use one like \"python\"", i, quote(language))
		}
		languages[i] = strings.ToLower(language)
	}
	p.code.languages = languages
	return nil
}

func (p *Policy) compileModules(code *v1alpha1.CodePolicy) error {
	denied := defaultDeniedModules()
	if code.DeniedModules != nil {
		denied = code.DeniedModules
	}
	for i, module := range denied {
		if module == "" || !utf8.ValidString(module) || strings.ContainsFunc(module, isSpaceOrControl) || strings.ContainsAny(module, "'\"`\\") {
			return fmt.Errorf("spec.code.deniedModules[%d]: %s is not a valid module name: use one like \"os\" or \"child_process\"", i, quote(module))
		}
	}
	p.code.modules = newModuleScanner(denied, !p.code.network)
	return nil
}

func (p *Policy) compileCodeBounds(code *v1alpha1.CodePolicy) error {
	longest, err := between("spec.code.maxExecutionMilliseconds", code.MaxExecutionMilliseconds, 0, 1, math.MaxInt64)
	if err != nil {
		return err
	}
	size, err := between("spec.code.maxScanBytes", code.MaxScanBytes, defaultMaxScan, 1, limitScan)
	if err != nil {
		return err
	}
	oversized, err := oneOf("spec.code.oversized", code.Oversized, v1alpha1.OversizedDeny, v1alpha1.OversizedScanPrefix)
	if err != nil {
		return err
	}
	p.code.maxTime = milliseconds(longest)
	p.code.maxScan = int(size)
	p.code.scanPrefix = oversized == v1alpha1.OversizedScanPrefix
	return nil
}

// milliseconds converts without overflow: what is too long for a Duration becomes the longest one.
func milliseconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}
