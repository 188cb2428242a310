package decide

// Approval is what people have to decide before a call starts.
type Approval struct {
	// Causes name the policy's requirements and rules that ask for it, sorted; there is at least one.
	Causes []string `json:"causes"`
	// Messages are what the rules among the causes say to those who decide.
	Messages []string `json:"messages,omitempty"`
	// Approvers says whom to ask.
	Approvers []string `json:"approvers,omitempty"`
	// Minimum is how many different people have to approve: the most that a cause asks for.
	Minimum int32 `json:"minimum"`
	// ExpiresSeconds is how long the call waits for the decision: the least that a cause says.
	ExpiresSeconds int32 `json:"expiresSeconds"`
}
