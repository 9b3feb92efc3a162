package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// letter is a dead line as it stands in a dead file.
type letter struct {
	ID string `json:"id"`
	// Body is the line without its newline; BodyBase64 is it where it is not UTF-8.
	// Exactly one of them is there.
	Body       *string `json:"body,omitempty"`
	BodyBase64 *string `json:"body_base64,omitempty"`
	// Truncated says that the line was over --max-line and body is its beginning. Such
	// a letter is not worked again: the line itself is in the input.
	Truncated bool `json:"truncated,omitempty"`

	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"` // 0 for a line that was refused
	Error    string `json:"error"`    // of the last attempt
	Stderr   string `json:"stderr"`   // of the last attempt, its last 4 KiB
}

const (
	stderrTail = 4 << 10
	errorMax   = 1 << 10 // the broker's own bound for an error's text
	idMax      = 255     // and for an id
)

// setBody puts the line where it fits.
func (l *letter) setBody(body []byte) {
	if utf8.Valid(body) {
		text := string(body)
		l.Body = &text
		return
	}
	text := base64.StdEncoding.EncodeToString(body)
	l.BodyBase64 = &text
}

// encode returns the letter as one line of JSON, newline included.
func (l *letter) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // people read this
	if err := e.Encode(l); err != nil {
		panic(fmt.Sprintf("dead letter: %v", err)) // strings and numbers always encode
	}
	return b.Bytes()
}

// parseLetter reads one line of a dead file, and returns its body apart. Fields that
// it does not know are ignored; people add notes.
func parseLetter(text []byte) (*letter, []byte, error) {
	var l letter
	if !utf8.Valid(text) {
		return nil, nil, errors.New("it is not UTF-8") // JSON would put other bytes in their place
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, nil, err
	}
	switch {
	case l.Body != nil && l.BodyBase64 != nil:
		return nil, nil, errors.New("it has both body and body_base64")
	case l.Body == nil && l.BodyBase64 == nil:
		return nil, nil, errors.New("it has neither body nor body_base64")
	case len(l.ID) > idMax:
		return nil, nil, fmt.Errorf("its id has %d bytes, limit %d", len(l.ID), idMax)
	case strings.ContainsRune(l.ID, 0):
		return nil, nil, errors.New("its id has a NUL, which no environment can hold")
	case l.Body != nil:
		return &l, []byte(*l.Body), nil
	}
	body, err := base64.StdEncoding.DecodeString(*l.BodyBase64)
	if err != nil {
		return nil, nil, fmt.Errorf("body_base64: %w", err)
	}
	return &l, body, nil
}

// deadFile is where dead lines are kept. Each letter is written when its line dies
// and with one write, so a run that is killed loses none that was announced.
type deadFile struct {
	file    *os.File
	name    string
	written int64
}

func newDeadFile(file *os.File, name string) *deadFile {
	return &deadFile{file: file, name: name}
}

// write appends one letter. After an error nothing of the letter is left in a
// regular file: half a record would spoil the whole of it for --from-dead.
func (d *deadFile) write(l *letter) error {
	text := l.encode()
	if _, err := d.file.Write(text); err != nil {
		_ = d.takeBack() // the error that counts is the first
		return fmt.Errorf("write %s: %w", d.name, causeOf(err))
	}
	d.written += int64(len(text))
	return nil
}

// causeOf is an error of a file without the file's name, which the caller says.
func causeOf(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// takeBack cuts a regular file behind its last whole letter.
func (d *deadFile) takeBack() error {
	if !d.isRegular() {
		return nil
	}
	if err := d.file.Truncate(d.written); err != nil {
		return err
	}
	_, err := d.file.Seek(d.written, io.SeekStart)
	return err
}

func (d *deadFile) isRegular() bool {
	info, err := d.file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// Sync makes the letters outlive the machine. A pipe cannot, and that is no error.
func (d *deadFile) Sync() error {
	if d.written == 0 || !d.isRegular() {
		return nil
	}
	if err := d.file.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", d.name, causeOf(err))
	}
	return nil
}

// Close closes the file. Its errors were those of Sync.
func (d *deadFile) Close() { _ = d.file.Close() }
