package spec

// otherNames are names that languages of code have beside their own.
var otherNames = map[string]string{"js": "javascript", "node": "javascript", "ts": "typescript", "python3": "python"}

// Language is the name of a language, in lower case, under which it is known how its code is read and its modules are found.
func Language(name string) string {
	if own, ok := otherNames[name]; ok {
		return own
	}
	return name
}
