package result

// Bounds of what an outcome says about the network.
const (
	// MaxDenials is how many refused addresses are listed: as many as a status lists.
	MaxDenials = 20
	// MaxDenialHost bounds a host's name, in bytes, as DNS does.
	MaxDenialHost = 253
)

// NetworkDenial is an address that a call was not allowed to reach.
type NetworkDenial struct {
	// Host is a name if the address was looked up by one, and an IP address otherwise.
	Host  string `json:"host"`
	Port  uint16 `json:"port"`
	Count int64  `json:"count"`
}

// Denials is a list of at most MaxDenials.
type Denials = List[NetworkDenial]

func (d *NetworkDenial) isValid() bool {
	return d.Count >= 1 && d.Host != "" && len(d.Host) <= MaxDenialHost
}
