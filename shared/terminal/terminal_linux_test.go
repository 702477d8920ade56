package terminal_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"flightline/shared/terminal"
	"flightline/shared/testenv"
)

func TestATerminalIsAskedAndNothingElse(t *testing.T) {
	for typed, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "yesterday\n": false} {
		person, program := testenv.Terminal(t, 80)
		if _, err := person.WriteString(typed); err != nil {
			t.Fatal(err)
		}
		if got := terminal.Confirm(t.Context(), program, program, "Delete it?"); got != want {
			t.Errorf("%q: got %v, want %v", typed, got, want)
		}
	}
	if !terminal.Confirm(t.Context(), strings.NewReader("n\n"), io.Discard, "Delete it?") {
		t.Error("got no from a script, which is not asked")
	}
}

const (
	job  = "01a208f7-6692-7f2a-94fc-97e500b9862a"
	long = "the handler raised an error that has a whole traceback, with many lines of it, beneath each other"
)

// seen is what write shows on a terminal of 80 columns, and in a pipe.
func seen(t *testing.T, write func(io.Writer) error) (onTerminal []string, inPipe string) {
	t.Helper()
	person, program := testenv.Terminal(t, 80)
	var pipe strings.Builder
	if err := errors.Join(write(program), write(&pipe)); err != nil {
		t.Fatal(err)
	}
	if _, err := program.WriteString("END"); err != nil {
		t.Fatal(err)
	}
	var shown []byte
	for buffer := make([]byte, 4096); !strings.HasSuffix(string(shown), "END"); {
		n, err := person.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, buffer[:n]...)
	}
	return strings.Split(strings.TrimSuffix(string(shown), "\r\nEND"), "\r\n"), pipe.String()
}

func TestATableFitsTheTerminal(t *testing.T) {
	rows := [][]string{
		{"ID", "STATUS", "SUBMITTED", "DELAY", "EXECUTION", "RETRIES", "WORKER", "ERROR"},
		{job, "COMPLETED", "2026-11-23T15:12:41Z", "3ms", "1ms", "0", job, long},
		{"more: flightline requests echo --cursor and a cursor that is longer than the terminal is wide, and whole"},
	}
	lines, pipe := seen(t, func(w io.Writer) error { return terminal.Table(w, rows) })
	for _, line := range lines[:2] {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("got a line of more than 80 columns: %s", line)
		}
	}
	if lines[2] != rows[2][0] || !strings.Contains(lines[1], "01a…862a") {
		t.Errorf("got %q, want both ends of the id, and the hint whole", lines)
	}
	if !strings.Contains(pipe, job) || !strings.Contains(pipe, long) {
		t.Errorf("got %s, want all of it where no person looks", pipe)
	}
}

func TestWhatAPersonAskedForIsNotShortened(t *testing.T) {
	lines, _ := seen(t, func(w io.Writer) error { return terminal.Table(w, [][]string{{"ID", job}, {"OUTPUT", long}}) })
	if want := "OUTPUT  " + long; len(lines) != 2 || lines[1] != want {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func TestAWrappedTableLosesNothing(t *testing.T) {
	lines, pipe := seen(t, func(w io.Writer) error {
		return terminal.WrappedTable(w, [][]string{{"warn", "durability", long}, {"", "", "→ short"}})
	})
	var words []string
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("got a line of more than 80 columns: %s", line)
		}
		words = append(words, strings.Fields(line)...)
	}
	if got, want := strings.Join(words, " "), "warn durability "+long+" → short"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := "warn  durability  " + long + "\n                  → short\n"; pipe != want {
		t.Errorf("got %q, want %q", pipe, want)
	}
}
