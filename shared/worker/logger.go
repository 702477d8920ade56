package worker

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"flightline/shared/job"
	"flightline/shared/logs"
)

// Logger returns a logger whose records are kept with the logs of the endpoint, where
// callers read them by job (`flightline logs ENDPOINT --job ID`); secrets of
// Config.Environment are hidden. They go to Config.Log too. It never waits: what is too
// fast is dropped, and counted there. Of a job made by hand it discards everything.
func (j *Job) Logger() *slog.Logger {
	var to []slog.Handler
	if j.log != nil {
		to = append(to, j.log.With("job", j.ID, "run", j.Run).Handler())
	}
	if j.lines != nil {
		to = append(to, newLineHandler(j.lines, job.ID(j.ID)))
	}
	return slog.New(slog.NewMultiHandler(to...))
}

// Printed keeps a line that a program printed which the handler runs, as Logger does, but
// not in Config.Log. The stream is "stdout" or "stderr".
func (j *Job) Printed(stream string, line []byte) {
	if j.lines != nil {
		j.lines.Log(stream, time.Now(), job.ID(j.ID), "", string(line))
	}
}

// lineHandler makes a line of a record: its message, and its attributes as slog writes
// them as text.
type lineHandler struct {
	lines *logs.Recorder
	job   job.ID
	attrs slog.Handler // writes to text
	text  *guarded
}

// guarded is a buffer that handlers share which were made from each other.
type guarded struct {
	sync.Mutex
	bytes.Buffer
}

func newLineHandler(lines *logs.Recorder, id job.ID) lineHandler {
	text := new(guarded)
	attrs := slog.NewTextHandler(&text.Buffer, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return lineHandler{lines: lines, job: id, attrs: attrs, text: text}
}

// Enabled implements slog.Handler.
func (h lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelDebug
}

// Handle implements slog.Handler.
func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	h.text.Lock()
	h.text.Reset()
	err := h.attrs.Handle(ctx, r)
	attrs := strings.TrimSpace(h.text.String())
	h.text.Unlock()
	text := r.Message
	if attrs != "" {
		text += " " + attrs
	}
	h.lines.Log(logs.Logger, r.Time, h.job, levelName(r.Level), text)
	return err
}

// WithAttrs implements slog.Handler.
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.attrs = h.attrs.WithAttrs(attrs)
	return h
}

// WithGroup implements slog.Handler.
func (h lineHandler) WithGroup(name string) slog.Handler {
	h.attrs = h.attrs.WithGroup(name)
	return h
}

func levelName(l slog.Level) string {
	switch {
	case l < slog.LevelInfo:
		return "debug"
	case l < slog.LevelWarn:
		return "info"
	case l < slog.LevelError:
		return "warn"
	}
	return "error"
}
