package main

import (
	"bufio"
	"fmt"
	"os"
)

// restFile takes the lines that an interrupted run has not finished, as they were
// read, so that it can be the input of the next.
type restFile struct {
	file    *os.File
	name    string
	made    bool // by us
	written bool
}

// write puts the lines into the file, in the order given.
func (r *restFile) write(lines []*line) error {
	if len(lines) == 0 {
		return nil
	}
	r.written = true
	b := bufio.NewWriter(r.file)
	for _, l := range lines {
		b.Write(l.source())
		b.WriteByte('\n')
	}
	err := b.Flush() // has the first error of all
	if info, e := r.file.Stat(); err == nil && e == nil && info.Mode().IsRegular() {
		err = r.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", r.name, causeOf(err))
	}
	return nil
}

// Close closes the file, and takes it away when there was nothing to write: a rest
// file means that there is a rest.
func (r *restFile) Close() {
	_ = r.file.Close() // written and synced before
	if r.made && !r.written {
		_ = os.Remove(r.name) // an empty file is no harm
	}
}
