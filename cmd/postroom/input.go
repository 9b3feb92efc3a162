package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
)

// line is one message of the input, and what the board knows of it.
type line struct {
	number int    // 1, 2, … in the input
	id     string // POSTROOM_ID, and the broker's
	body   []byte // without its newline

	// raw is the line as it was read, when that is not body: a record of a dead file.
	// It is what goes into the rest file.
	raw []byte
	// refusal is why the line cannot be worked at all; it dies as it stands.
	refusal *refusal

	// Of the board, under its lock.
	lastError string // of the last attempt that failed
	stderr    []byte // the tail of that attempt's
	death     *letter
}

// source is what went in for this line: the bytes that a rest file gives back.
func (l *line) source() []byte {
	if l.raw != nil {
		return l.raw
	}
	return l.body
}

// size is what the line counts against the board's bytes.
func (l *line) size() int64 { return int64(len(l.body) + len(l.raw) + len(l.id)) }

// refusal is why a line dies without an attempt.
type refusal struct {
	reason    string // reasonTooLong or reasonMalformed
	err       string
	truncated bool // body is not all of it
}

// Reasons that a dead letter has besides the broker's own.
const (
	reasonTooLong   = "too_long"  // over --max-line
	reasonMalformed = "malformed" // not a record of a dead file
)

// source reads lines. It returns io.EOF behind the last one.
type source interface{ next() (*line, error) }

// lineReader cuts its input at newlines, with a bound on what it keeps of a line.
type lineReader struct {
	in     *bufio.Reader
	max    int
	number int // of the line read last
}

func newLineReader(in io.Reader, max int) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 64<<10), max: max}
}

// read returns the next line without its newline and how long it was, which is more
// than len(text) when it is over the maximum. The last line may lack its newline.
// text is the caller's.
func (r *lineReader) read() (text []byte, length int64, err error) {
	for {
		part, err := r.in.ReadSlice('\n')
		complete := err == nil
		if complete {
			part = part[:len(part)-1]
		}
		length += int64(len(part))
		if room := r.max - len(text); room > 0 {
			text = append(text, part[:min(room, len(part))]...)
		}
		switch {
		case complete:
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && length > 0:
			// The last line; the next read says EOF again.
		default:
			return nil, 0, err // half a line before another error is no line
		}
		r.number++
		return text, length, nil
	}
}

// plainLines is the input as it is: one line, one message.
type plainLines struct {
	*lineReader
	run       string // the run's id
	skipEmpty bool
}

func (s *plainLines) next() (*line, error) {
	for {
		text, length, err := s.read()
		if err != nil {
			return nil, err
		}
		if length == 0 && s.skipEmpty {
			continue
		}
		l := &line{number: s.number, id: lineID(s.run, s.number), body: text}
		if length > int64(len(text)) {
			l.refusal = &refusal{reason: reasonTooLong, err: tooLong(s.number, length, s.max), truncated: true}
		}
		return l, nil
	}
}

func lineID(run string, number int) string { return fmt.Sprintf("%s-%d", run, number) }

func tooLong(number int, length int64, max int) string {
	return fmt.Sprintf("line %d has %d bytes, --max-line is %d", number, length, max)
}

// deadLines is the input as a dead file: one record a line, blank lines left out.
type deadLines struct {
	*lineReader
	run     string
	maxBody int
}

// newDeadLines allows a record what a line of maxBody bytes can become as JSON:
// six bytes for one (\u0000), and as much for 4 KiB of stderr, 1 KiB of error.
func newDeadLines(in io.Reader, run string, maxBody int) *deadLines {
	return &deadLines{lineReader: newLineReader(in, 6*(maxBody+stderrTail+errorMax)+(64<<10)), run: run, maxBody: maxBody}
}

func (s *deadLines) next() (*line, error) {
	for {
		text, length, err := s.read()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		l := &line{number: s.number, id: lineID(s.run, s.number), body: text, raw: text}
		if length > int64(len(text)) {
			l.body = text[:s.maxBody]
			l.refusal = &refusal{reason: reasonTooLong, err: fmt.Sprintf("line %d: a record of %d bytes; raise --max-line", s.number, length), truncated: true}
			return l, nil
		}
		s.fill(l)
		return l, nil
	}
}

// fill makes the record's line out of it. One that never was a line to work, or is
// not all of it, is refused again: running part of a line is worse than not running it.
func (s *deadLines) fill(l *line) {
	record, body, err := parseLetter(l.raw)
	if err != nil {
		l.refusal = &refusal{reason: reasonMalformed, err: fmt.Sprintf("line %d: not a dead letter: %v", l.number, err)}
		return
	}
	if record.ID != "" {
		l.id = record.ID
	}
	l.body = body
	switch {
	case record.Truncated || record.Reason == reasonMalformed:
		l.refusal = &refusal{reason: cmp.Or(record.Reason, reasonTooLong), err: record.Error, truncated: record.Truncated}
	case len(body) > s.maxBody:
		l.refusal = &refusal{reason: reasonTooLong, err: tooLong(l.number, int64(len(body)), s.maxBody)}
	}
}
