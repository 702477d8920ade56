package logs_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/shared/logs"
	"flightline/shared/logs/logstest"
)

func TestANoteIsALineOfTheWorker(t *testing.T) {
	s := newEnv(t)
	source := logs.Source{Endpoint: "ep", Worker: "w1", Env: map[string]string{"API_TOKEN": "secret-of-the-test"}}
	lastTime := func() time.Time {
		t.Helper()
		at, err := logs.LastTime(t.Context(), s.bus, source)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	note := func(id, text string) {
		t.Helper()
		if err := logs.Note(t.Context(), s.bus, source, id, time.Now(), "warn", text); err != nil {
			t.Fatal(err)
		}
	}
	note("1", "pulling with secret-of-the-test")
	if at := lastTime(); !at.IsZero() {
		t.Errorf("the worker printed nothing: got %s", at)
	}
	s.print(t, "w1", nil, "hello\n")
	printed := lastTime()
	note("2", "asleep")
	note("3", "awake")
	note("2", "asleep") // by a new leader
	if at := lastTime(); printed.IsZero() || !at.Equal(printed) {
		t.Errorf("got %s, want the time of the last line that it printed, %s", at, printed)
	}
	s.print(t, "w1", nil, "more\n")
	if at := lastTime(); !at.After(printed) {
		t.Errorf("got %s, want the time of the new line, after %s", at, printed)
	}
	all := s.all(t, logs.Watching{Endpoint: s.e, Resume: true})
	if got, want := logstest.Texts(all), "pulling with ***|hello|asleep|awake|more"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l := all[0]; l.Stream != logs.System || l.Worker != "w1" || l.Level != "warn" || l.Job != "" {
		t.Errorf("got %+v", l)
	}
}

// A note that came between two batches must not hide the later one from LastTime.
func TestNotesAndLinesAtOnce(t *testing.T) {
	s := newEnv(t)
	source := logs.Source{Endpoint: "ep", Worker: "w1"}
	const n = 40
	var notes sync.WaitGroup
	notes.Go(func() {
		for i := range n {
			if err := logs.Note(t.Context(), s.bus, source, fmt.Sprint(i), time.Now(), "", fmt.Sprint("note ", i)); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range n {
		s.print(t, "w1", nil, fmt.Sprintf("line %d\n", i))
	}
	notes.Wait()
	all := s.all(t, logs.Watching{Endpoint: s.e, Resume: true})
	var last time.Time
	for _, l := range all {
		if strings.HasPrefix(l.Text, "line ") {
			last = l.Time
		}
	}
	if at, err := logs.LastTime(t.Context(), s.bus, source); err != nil || !at.Equal(last) || len(all) != 2*n {
		t.Errorf("got %s, %v of %d lines, want %s of %d", at, err, len(all), last, 2*n)
	}
}
