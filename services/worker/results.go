package worker

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"flightline/shared/job"
)

// maxLine is the longest line of output that is read: the largest result, and
// what surrounds it.
const maxLine = job.MaxOutput + 1<<10

// errLineTooLong fails a job whose command writes a longer line, or more text.
var errLineTooLong = tooLarge("a line of output, or the text without JSON,")

// tooLarge is the error of a job whose output is longer than job.MaxOutput; what names it.
func tooLarge(what string) error {
	return errors.New(job.ErrTextOutputTooLarge + ": " + what + " is longer than 20 MB")
}

// results reads lines of output and separates results from other text: every line
// that is a JSON document is a result, and each but the last is a chunk.
type results struct {
	// emit sends a chunk; its error ends the reading.
	emit func(chunk json.RawMessage) error
	// other gets each line that is no result.
	other func(line []byte)

	last json.RawMessage // the latest result

	// text is the lines so far that are no result, while there is no result.
	text    []byte
	tooLong bool // it was more than maxLine, and was dropped
}

// output is the last result. Where there was none it is the text, without the end
// of its last line, or nil if there was no text either. It returns errLineTooLong.
func (s *results) output() (any, error) {
	switch {
	case s.last != nil:
		return s.last, nil
	case s.tooLong:
		return nil, errLineTooLong
	case len(s.text) == 0:
		return nil, nil
	}
	return string(bytes.TrimRight(s.text, "\n")), nil
}

// readFrom reads r to its end. It returns errLineTooLong, an error of emit, or
// one of r.
func (s *results) readFrom(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine+len("\r\n"))
	for lines.Scan() {
		if err := s.take(lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return errLineTooLong
	}
	return lines.Err()
}

// take takes a line, which may end with carriage returns.
func (s *results) take(whole []byte) error {
	whole = bytes.TrimRight(whole, "\r")
	line := bytes.TrimSpace(whole)
	switch {
	case len(line) == 0:
		s.keep(whole)
		return nil
	case !json.Valid(line):
		s.keep(whole)
		s.other(line)
		return nil
	}
	earlier := s.last
	s.last, s.text, s.tooLong = bytes.Clone(line), nil, false
	if earlier == nil {
		return nil
	}
	return s.emit(earlier)
}

// keep adds a line to the text. Empty lines before the first one are dropped.
func (s *results) keep(line []byte) {
	switch {
	case s.last != nil, s.tooLong, len(s.text) == 0 && len(line) == 0:
	case len(s.text)+len(line) > maxLine:
		s.text, s.tooLong = nil, true
	default:
		s.text = append(append(s.text, line...), '\n')
	}
}
