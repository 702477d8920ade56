// Package ledger is the file in which the handlers of a chaos test write what
// they did. Flightline neither writes nor reads it.
package ledger

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Input is the input of each job.
type Input struct {
	// N is the number of the job; it also is its Idempotency-Key.
	N int `json:"n"`
	// Milliseconds is how long the handler works.
	Milliseconds int `json:"ms"`
	// Tick, if it is not 0, makes the handler work until the clock shows a
	// multiple of so many milliseconds, so that many handlers finish together.
	Tick int `json:"tick,omitempty"`
	// Gate is the path of a file; once it exists, the handler finishes early.
	// "" means none.
	Gate string `json:"gate,omitempty"`
}

// Until is when a handler that begins now finishes, unless its gate opens.
func (i Input) Until(now time.Time) time.Time {
	end := now.Add(time.Duration(i.Milliseconds) * time.Millisecond)
	if tick := time.Duration(i.Tick) * time.Millisecond; tick > 0 {
		end = end.Truncate(tick).Add(tick)
	}
	return end
}

// Kind says what an entry is about.
type Kind string

// The kinds of entries.
const (
	Begin Kind = "begin" // a handler starts
	End   Kind = "end"   // a handler has done all its work
)

// Entry is a line of the file.
type Entry struct {
	Kind   Kind
	At     time.Time // set by Write
	N      int
	Job    string
	Worker string // no spaces; may be ""
	// Process is the handler's, Parent that of its worker.
	Process, Parent int
}

// By names the run of a handler. Two runs of a job have different names.
func (e Entry) By() string { return fmt.Sprintf("%s/%d", e.Worker, e.Process) }

// File is a ledger that is open for appending.
type File struct{ f *os.File }

// Append opens the file, which is made if it is absent.
func Append(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &File{f: f}, nil
}

// Write appends an entry in one write, so that lines of several processes do
// not mix and a line survives its process.
func (l *File) Write(e Entry) error {
	line := fmt.Sprintf("%s %d %d %q %q %d %d\n", e.Kind, time.Now().UnixNano(), e.N, e.Job, e.Worker, e.Process, e.Parent)
	if _, err := l.f.WriteString(line); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	return nil
}

// Reader reads a ledger while others append to it.
type Reader struct {
	f    *os.File
	r    *bufio.Reader
	rest string // of a line whose end is not there yet
}

// Open opens the file for reading; it is made if it is absent.
func Open(path string) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	return &Reader{f: f, r: bufio.NewReader(f)}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Next returns the next entry; ok is false if it is not written yet.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	part, err := r.r.ReadString('\n')
	r.rest += part
	if errors.Is(err, io.EOF) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("read ledger: %w", err)
	}
	line := r.rest
	r.rest = ""
	var at int64
	if _, err := fmt.Sscanf(line, "%s %d %d %q %q %d %d\n", &e.Kind, &at, &e.N, &e.Job, &e.Worker, &e.Process, &e.Parent); err != nil {
		return e, false, fmt.Errorf("read ledger: line %q: %w", line, err)
	}
	e.At = time.Unix(0, at)
	return e, true, nil
}
