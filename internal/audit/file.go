package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// File writes each record as a line at the end of a file. Before a line would make the file larger than MaxBytes, the file becomes
// PATH.1, and that PATH.2, up to MaxFiles files with the newest. One goroutine at a time may write.
type File struct {
	Path     string
	MaxBytes int64
	MaxFiles int

	// open is nil until the first record, and after an error.
	open *os.File
}

// fileMode keeps the log from others.
const fileMode = 0o600

// Write implements Sink. A part of a record that is in the file, whichever operator wrote it, becomes a line of its own. It isn't removed:
// another operator may be about to write the rest.
func (f *File) Write(r Record) error {
	line := r.line()
	isTorn, err := f.prepare(int64(len(line)))
	if err != nil {
		return err
	}
	if isTorn {
		line = append([]byte("\n"), line...)
	}
	if _, err := f.open.Write(line); err != nil {
		f.Close()
		return fmt.Errorf("write the record %s: %w", r.ID, err)
	}
	return nil
}

// Close closes the file. Another record opens it again.
func (f *File) Close() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}

// prepare opens the file if it isn't, and begins another one if this is full. isTorn says that the file's last line has no end.
func (f *File) prepare(more int64) (isTorn bool, err error) {
	size, isTorn, err := f.end()
	if err != nil || size == 0 || size+more <= f.MaxBytes {
		return isTorn, err
	}
	f.Close()
	if err := f.rotate(); err != nil {
		return false, err
	}
	_, isTorn, err = f.end()
	return isTorn, err
}

// end opens the file if it isn't, and returns its size, and whether its last line has no end. Another operator can have written to it since
// the last record.
func (f *File) end() (size int64, isTorn bool, err error) {
	if !f.isCurrent() {
		f.Close()
	}
	if f.open == nil {
		if f.open, err = os.OpenFile(f.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode); err != nil {
			return 0, false, fmt.Errorf("open the audit log: %w", err)
		}
	}
	last := []byte{'\n'}
	info, err := f.open.Stat()
	if err == nil && info.Size() > 0 {
		size = info.Size()
		_, err = f.open.ReadAt(last, size-1)
	}
	if err != nil {
		f.Close()
		return 0, false, fmt.Errorf("find the end of the audit log: %w", err)
	}
	return size, last[0] != '\n', nil
}

// isCurrent says that the open file still has the log's name: another operator may have begun the next one.
func (f *File) isCurrent() bool {
	if f.open == nil {
		return false
	}
	named, err := os.Stat(f.Path)
	if err != nil {
		return false
	}
	opened, err := f.open.Stat()
	return err == nil && os.SameFile(named, opened)
}

// rotate gives each file the name of the one before it; the oldest is replaced. With one file it is removed.
func (f *File) rotate() error {
	for n := f.MaxFiles - 1; n >= 1; n-- {
		if err := os.Rename(f.name(n-1), f.name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate the audit log: %w", err)
		}
	}
	if f.MaxFiles > 1 {
		return nil
	}
	if err := os.Remove(f.Path); err != nil {
		return fmt.Errorf("remove the full audit log: %w", err)
	}
	return nil
}

// name is that of a file, 0 being the newest.
func (f *File) name(n int) string {
	if n == 0 {
		return f.Path
	}
	return f.Path + "." + strconv.Itoa(n)
}

// maxIDs bounds how many records are read back, some 40 MiB of memory.
const maxIDs = 1_000_000

// IDs are the IDs of records, as hashes: any two are different but for a chance of none.
type IDs map[[16]byte]struct{}

func hashOf(id string) [16]byte {
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}

// Has says that a record is among them.
func (ids IDs) Has(id string) bool {
	_, has := ids[hashOf(id)]
	return has
}

// add adds the ID of a record that is made of an object; others, such as of a transfer, are made once. It reports whether there is room
// for more.
func (ids IDs) add(id string, limit int) bool {
	if kind, _, _ := strings.Cut(id, "/"); slices.Contains([]string{"call", "session", "approval"}, kind) {
		ids[hashOf(id)] = struct{}{}
	}
	return len(ids) < limit
}

// IDs are those of the records of objects that the files have, of the newest files first, up to 1,000,000.
func (f *File) IDs() (IDs, error) { return f.readBack(maxIDs) }

func (f *File) readBack(limit int) (IDs, error) {
	ids := IDs{}
	for n := range f.MaxFiles {
		err := readIDs(f.name(n), ids, limit)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ids, fmt.Errorf("read the audit log back: %w", err)
		}
		if len(ids) >= limit {
			break
		}
	}
	return ids, nil
}

// beginning is that of each line, before the ID.
const beginning = `{"schema":"` + Schema + `","id":"`

// maxID bounds an ID.
const maxID = 256

// readIDs adds the IDs of a file's whole lines, as long as there is room. What isn't a record is passed over.
func readIDs(path string, ids IDs, limit int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		id := idOf(line)
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line isn't kept
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !ids.add(id, limit):
			return nil
		}
	}
}

// idOf is the ID of a record in the beginning of its line; empty for another line.
func idOf(line []byte) string {
	rest, is := bytes.CutPrefix(line, []byte(beginning))
	if !is {
		return ""
	}
	id, _, is := bytes.Cut(rest[:min(len(rest), maxID)], []byte(`"`))
	if !is {
		return ""
	}
	return string(id)
}
