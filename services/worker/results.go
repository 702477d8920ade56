package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"flightline/shared/job"
)

// maxLine is the longest line of output that is read: the largest result, and
// what surrounds it.
const maxLine = job.MaxOutput + 1<<10

// errLineTooLong fails a job whose command writes a longer line.
var errLineTooLong = errors.New(job.ErrTextOutputTooLarge + ": a line of output is longer than 20 MB")

// results reads lines of output and tells results from other text: every line
// that is a JSON document is a result, and each but the last is a chunk.
type results struct {
	// emit sends a chunk; its error ends the reading.
	emit func(chunk json.RawMessage) error
	// other hears of a line that is no result.
	other func(line []byte)

	line []byte          // without an end so far
	last json.RawMessage // the latest result
}

// readFrom reads r to its end. It returns errLineTooLong, an error of emit, or
// one of r.
func (s *results) readFrom(r io.Reader) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if e := s.write(buf[:n]); e != nil {
			return e
		}
		if err == io.EOF {
			return s.flush()
		}
		if err != nil {
			return err
		}
	}
}

func (s *results) write(p []byte) error {
	for {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			break
		}
		s.line = append(s.line, p[:end]...)
		p = p[end+1:]
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.line = append(s.line, p...)
	if len(s.line) > maxLine {
		return errLineTooLong
	}
	return nil
}

// flush takes the line as it is.
func (s *results) flush() error {
	line := bytes.TrimSpace(s.line)
	s.line = s.line[:0]
	switch {
	case len(line) == 0:
		return nil
	case len(line) > maxLine:
		return errLineTooLong
	case !json.Valid(line):
		s.other(line)
		return nil
	}
	earlier := s.last
	s.last = bytes.Clone(line)
	if earlier == nil {
		return nil
	}
	return s.emit(earlier)
}
