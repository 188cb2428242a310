package result

// ReplaceTexts replaces each text of the outcome that a call can have decided. Streams are replaced while they are read, and
// the paths of artifacts while they are collected. Texts that name hosts have a replacement of their own, because names lose the
// case of their letters. The texts aren't shortened before, so that they are whole.
func (o *Outcome) ReplaceTexts(replace, replaceHosts func(string) string) {
	o.Message, o.Refusal = replaceHosts(o.Message), replaceHosts(o.Refusal)
	for i := range o.Denied {
		o.Denied[i].Host = replaceHosts(o.Denied[i].Host)
	}
	texts := []*string{&o.WorkingDir}
	if o.File != nil {
		texts = append(texts, &o.File.Path)
	}
	for _, list := range []Programs{o.Executed, o.Refused} {
		for i := range list {
			texts = append(texts, &list[i].Path)
		}
	}
	if i := o.Isolation; i != nil {
		for _, list := range i.pathLists() {
			for j := range *list {
				texts = append(texts, &(*list)[j])
			}
		}
	}
	if o.Artifacts != nil {
		texts = append(texts, &o.Artifacts.Message)
	}
	for _, text := range texts {
		*text = replace(*text)
	}
}
