package files

func (c *call) stat() (Result, error) {
	p, err := c.resolve(c.req.Path, how{})
	if err != nil {
		return Result{}, err
	}
	defer p.close()
	entry := newEntry(p.path, &p.st)
	if entry.Type == TypeLink {
		target, err := readLink(p.fd)
		if err != nil {
			return Result{}, fileError("read the symbolic link", p.path, err)
		}
		entry.Target, entry.TargetBase64 = exact(target)
	}
	out := c.newResults(1)
	result, err := out.finish(p, out.add(entry))
	result.Bytes = entry.Size
	return result, err
}
