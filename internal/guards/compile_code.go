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

func (c *codeRules) compile(spec *v1alpha1.ExecutionPolicySpec) error {
	code := spec.Code
	if code == nil {
		code = &v1alpha1.CodePolicy{}
	}
	c.enabled = code.Enabled == nil || *code.Enabled
	c.network, c.noNetwork = codeHasNetwork(spec, code), "code.networkAccess is false"
	if spec.Network != nil && spec.Network.Mode == v1alpha1.NetworkNone {
		c.noNetwork = "network.mode is None"
	}
	if err := c.compileLanguages(code); err != nil {
		return err
	}
	if err := c.compileModules(code); err != nil {
		return err
	}
	return c.compileBounds(code)
}

func (c *codeRules) compileLanguages(code *v1alpha1.CodePolicy) error {
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
	c.languages = languages
	return nil
}

func (c *codeRules) compileModules(code *v1alpha1.CodePolicy) error {
	denied := defaultDeniedModules()
	if code.DeniedModules != nil {
		denied = code.DeniedModules
	}
	for i, module := range denied {
		if module == "" || !utf8.ValidString(module) || strings.ContainsFunc(module, isSpaceOrControl) || strings.ContainsAny(module, "'\"`\\") {
			return fmt.Errorf("spec.code.deniedModules[%d]: %s is not a valid module name: use one like \"os\" or \"child_process\"", i, quote(module))
		}
	}
	c.modules = newModuleScanner(denied, !c.network)
	return nil
}

func (c *codeRules) compileBounds(code *v1alpha1.CodePolicy) error {
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
	c.maxTime = milliseconds(longest)
	c.maxScan = int(size)
	c.scanPrefix = oversized == v1alpha1.OversizedScanPrefix
	return nil
}

// milliseconds converts without overflow: what is too long for a Duration becomes the longest one.
func milliseconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}
