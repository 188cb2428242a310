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
	sum, err := c.sumOfEntry(p, &entry)
	if err != nil {
		return Result{}, err
	}
	out := c.newResults(1)
	result, err := out.finish(p, out.add(entry))
	result.Bytes, result.SHA256 = entry.Size, sum
	return result, err
}

// sumOfEntry returns the checksum of a file that may be compared, so that a file too large for one Read can be replaced on
// condition; empty for what can't be read, or isn't shown whole.
func (c *call) sumOfEntry(p *place, entry *Entry) (string, error) {
	if entry.Type != TypeFile || entry.Size > c.rules.MaxReadBytes {
		return "", nil
	}
	sum := c.newShownSum()
	if err := c.copyFile(sum, p); err != nil {
		return "", c.ctx.Err()
	}
	return sum.hex(), nil
}
