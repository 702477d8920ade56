package worker

import (
	"bytes"

	"flightline/shared/logs"
)

// tail keeps the end of what is written to it. It never fails, and never
// waits, so that a command is not held up by its stderr.
type tail struct {
	most int
	line func(line []byte) // gets each whole line

	kept []byte
	cut  bool
	open []byte // the line so far
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*t.most {
		t.trim()
	}
	for rest := p; ; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			t.open = append(t.open, rest...)
			t.open = t.open[max(0, len(t.open)-t.most):]
			return len(p), nil
		}
		t.line(logs.LastOverwrite(append(t.open, rest[:end]...)))
		t.open, rest = t.open[:0], rest[end+1:]
	}
}

// flush takes the line so far as the last one.
func (t *tail) flush() {
	if len(t.open) > 0 {
		t.line(logs.LastOverwrite(t.open))
		t.open = nil
	}
}

func (t *tail) trim() {
	if over := len(t.kept) - t.most; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
}

// String is the end of the text, marked if it is not all.
func (t *tail) String() string {
	t.trim()
	text := string(bytes.ToValidUTF8(bytes.TrimSpace(t.kept), []byte("\uFFFD")))
	if t.cut {
		return "(cut) …" + text
	}
	return text
}
