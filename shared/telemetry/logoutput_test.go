package telemetry

import (
	"bufio"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestAnOutputThatStandsStillHoldsUpNoLine reads nothing of a log, and then all of it.
func TestAnOutputThatStandsStillHoldsUpNoLine(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]func(io.Writer) slog.Handler{
		"text": func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, w := io.Pipe()
			out := &logOutput{out: w, form: form, wait: 50 * time.Millisecond}
			log := slog.New(form(out))
			log.Info("first")
			log.Info("second")
			log.Info("third")

			lines := bufio.NewScanner(r)
			next := func(want ...string) {
				t.Helper()
				if !lines.Scan() {
					t.Fatalf("no line, want one with %q: %v", want, lines.Err())
				}
				for _, part := range want {
					if !strings.Contains(lines.Text(), part) {
						t.Errorf("line %q, want one with %q", lines.Text(), part)
					}
				}
			}
			next("first")
			<-out.stuck
			go log.Info("fourth")
			next("WARN", "lines_left_out", "2")
			next("fourth")
		})
	}
}
