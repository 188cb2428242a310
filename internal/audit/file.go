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

	// open is nil until the first record, and after an error. size is that of its whole lines.
	open *os.File
	size int64
}

// fileMode keeps the log from others.
const fileMode = 0o600

// Write implements Sink. After an error the part of the record that is in the file is removed before the next one is written.
func (f *File) Write(r Record) error {
	line := r.line()
	if err := f.prepare(int64(len(line))); err != nil {
		return err
	}
	if _, err := f.open.Write(line); err != nil {
		f.Close()
		return fmt.Errorf("write the record %s: %w", r.ID, err)
	}
	f.size += int64(len(line))
	return nil
}

// Close closes the file. Another record opens it again.
func (f *File) Close() {
	if f.open != nil {
		_ = f.open.Close()
		f.open = nil
	}
}

// prepare opens the file if it isn't, and begins another one if this is full.
func (f *File) prepare(more int64) error {
	if f.open == nil {
		if err := f.openEnd(); err != nil {
			return err
		}
	}
	if f.size == 0 || f.size+more <= f.MaxBytes {
		return nil
	}
	f.Close()
	if err := f.rotate(); err != nil {
		return err
	}
	return f.openEnd()
}

// openEnd opens the file and removes the beginning of a line that was not written to its end.
func (f *File) openEnd() error {
	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_RDWR|os.O_APPEND, fileMode)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	size, err := wholeLines(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err != nil {
		_ = file.Close()
		return fmt.Errorf("find the end of the audit log: %w", err)
	}
	f.open, f.size = file, size
	return nil
}

// wholeLines is the size of a file up to its last line end.
func wholeLines(file *os.File) (int64, error) {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	part := make([]byte, 64<<10)
	for end > 0 {
		start := max(end-int64(len(part)), 0)
		n, err := file.ReadAt(part[:end-start], start)
		if err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part[:n], '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
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
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !ids.add(idOf(line), limit):
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
