package guards

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"toolcall.dev/operator/api/v1alpha1"
)

func (r *codeRules) compile(c *compiler) {
	code := cmp.Or(c.spec.Code, &v1alpha1.CodePolicy{})
	r.enabled = code.Enabled == nil || *code.Enabled
	r.network, r.noNetwork = codeHasNetwork(c.spec, code), "code.networkAccess is false"
	if c.spec.Network != nil && c.spec.Network.Mode == v1alpha1.NetworkNone {
		r.noNetwork = "network.mode is None"
	}
	r.languages = compileLanguages(c, code)
	r.modules = compileModules(c, code, !r.network)
	r.maxTime = milliseconds(between(c, "spec.code.maxExecutionMilliseconds", code.MaxExecutionMilliseconds, span[int64]{0, 1, math.MaxInt64}))
	r.maxScan = int(between(c, "spec.code.maxScanBytes", code.MaxScanBytes, span[int32]{defaultMaxScan, 1, limitScan}))
	r.scanPrefix = oneOf(c, "spec.code.oversized", code.Oversized, v1alpha1.OversizedDeny, v1alpha1.OversizedScanPrefix) == v1alpha1.OversizedScanPrefix
}

func compileLanguages(c *compiler, code *v1alpha1.CodePolicy) []string {
	languages := defaultLanguages()
	if code.Languages != nil {
		languages = slices.Clone(code.Languages)
	}
	for i, language := range languages {
		if language == "" || strings.ContainsFunc(language, isSpaceOrControl) {
			c.fail("spec.code.languages[%d]: %s is not a valid language name: use one like \"python\"", i, quote(language))
		}
		languages[i] = strings.ToLower(language)
	}
	return languages
}

func compileModules(c *compiler, code *v1alpha1.CodePolicy, network bool) *moduleScanner {
	denied := defaultDeniedModules()
	if code.DeniedModules != nil {
		denied = code.DeniedModules
	}
	for i, module := range denied {
		if len(splitModule(module)) == 0 || !utf8.ValidString(module) || strings.ContainsFunc(module, isSpaceOrControl) || strings.ContainsAny(module, "'\"`\\") {
			c.fail("spec.code.deniedModules[%d]: %s is not a valid module name: use one like \"os\" or \"child_process\"", i, quote(module))
			return nil
		}
	}
	return newModuleScanner(denied, network)
}

// milliseconds converts without overflow: what is too long for a Duration becomes the longest one.
func milliseconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Millisecond)
	return time.Duration(max(-most, min(n, most))) * time.Millisecond
}
