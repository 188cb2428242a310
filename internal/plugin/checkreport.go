package plugin

import "strings"

// checkReport is what check prints with -o.
type checkReport struct {
	// Allowed is yes, no or unknown.
	Allowed string `json:"allowed"`
	// Reason and Message say why the call would be denied or fail.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Denied says whether a call that isn't allowed would be denied, or fail before it starts.
	Denied    bool     `json:"denied"`
	Requester string   `json:"requester,omitempty"`
	Tool      string   `json:"tool,omitempty"`
	MayUse    *bool    `json:"mayUse,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`

	Environment string `json:"environment,omitempty"`
	Image       string `json:"image,omitempty"`
	Policy      string `json:"policy,omitempty"`
	// What follows is there for a call that is allowed.
	Command        string            `json:"command,omitempty"`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty"`
	Walls          map[string]string `json:"walls,omitempty"`
	Variables      map[string]string `json:"variables,omitempty"`
}

// show prints the evaluation, as text or as an object.
func (v *evaluation) show(c *cli, formats *outputFormats) error {
	if !formats.isObject() {
		return v.write(c.Out)
	}
	object, err := reportObject("Check", v.report())
	if err != nil {
		return err
	}
	object.SetName("check")
	return formats.print(c, object, []printable{object})
}

func (v *evaluation) report() *checkReport {
	r := &checkReport{Allowed: "yes", MayUse: v.mayUse, Requester: v.call.RequesterName()}
	switch {
	case v.refusal != nil:
		r.Allowed, r.Denied, r.Reason, r.Message = "no", v.refusal.Denied, v.refusal.Reason, v.refusal.Message
	case v.unknown != nil:
		r.Allowed, r.Message = "unknown", v.unknown.Error()
	}
	if v.action != nil {
		r.Tool = v.action.Tool()
	}
	if env := v.snapshot.Effective(); env != nil {
		r.Environment, r.Image, r.Policy = env.Name, env.Spec.Image, v.policyName(env)
		for _, f := range v.warningFields() {
			r.Warnings = append(r.Warnings, f.value)
		}
	}
	if v.decision != nil {
		r.Command, r.TimeoutSeconds = v.command(), v.decision.Timeout().Seconds()
		r.Walls, r.Variables = fieldMap(v.wallFields()), fieldMap(v.variableFields())
	}
	return r
}

// fieldMap has the fields of a section by their names.
func fieldMap(fields []field) map[string]string {
	all := map[string]string{}
	for _, f := range fields {
		all[strings.Trim(f.name, "()")] = f.value
	}
	return all
}
