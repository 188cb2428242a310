package client

// Names are those that the API defines too.
func Names() []string {
	return []string{group + "/" + version, headerUID, headerOffset, headerBytes, headerComplete, headerSHA256, string(causeNextOffset)}
}
