package guards

import (
	"slices"

	"toolcall.dev/operator/api/v1alpha1"
)

func (c *codeRules) checkEnabled(*Input) *Denial {
	if c.enabled {
		return nil
	}
	return deny(v1alpha1.ReasonCodeDisabled, "code calls are disabled (code.enabled is false): use a structured call")
}

func (c *codeRules) checkLanguage(in *Input) *Denial {
	if len(c.languages) == 0 || slices.Contains(c.languages, in.Action.Language) {
		return nil
	}
	return deny(v1alpha1.ReasonLanguageNotAllowed,
		"language %s is not listed in the policy's code.languages: use one of %s", quote(in.Action.Language), joinNames(c.languages)).instead(c.languages)
}

func (c *codeRules) checkSource(in *Input) *Denial {
	source := in.Action.Source
	if len(source) > c.maxScan && !c.scanPrefix {
		return deny(v1alpha1.ReasonSourceTooLarge,
			"the source has %d bytes and only %d are scanned (code.maxScanBytes, with code.oversized Deny): shorten it, or split it into several calls",
			len(source), c.maxScan)
	}
	found := c.modules.scan(cutBytes(source, c.maxScan), in.Action.Language)
	switch {
	case found.unreadable != "":
		return deny(v1alpha1.ReasonModuleNotAllowed, "the source can't be searched for modules: %s", found.unreadable)
	case found.denied != "":
		return deny(v1alpha1.ReasonModuleNotAllowed,
			"the source uses the module %s, which the policy's code.deniedModules lists: don't use it", quote(found.denied))
	case found.network != "" && !c.network:
		return deny(v1alpha1.ReasonNetworkNotAllowed,
			"the source uses %s to reach the network, and the policy's %s: don't use the network", quote(found.network), c.noNetwork)
	default:
		return nil
	}
}

func (c *codeRules) checkNetworkAsked(in *Input) *Denial {
	if c.network || !in.Action.Network {
		return nil
	}
	return deny(v1alpha1.ReasonNetworkNotAllowed,
		"the call asks for network access, and the policy's %s: don't ask for it, and don't use the network", c.noNetwork)
}

func (c *codeRules) checkTime(in *Input) *Denial {
	wanted := in.Action.WantedTime
	if c.maxTime == 0 || wanted == nil || *wanted <= c.maxTime {
		return nil
	}
	return deny(v1alpha1.ReasonExecutionTimeTooLong,
		"the call asks for %d ms, and the policy's code.maxExecutionMilliseconds is %d: ask for at most that",
		wanted.Milliseconds(), c.maxTime.Milliseconds())
}
