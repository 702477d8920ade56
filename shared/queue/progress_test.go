package queue

import (
	"encoding/json"
	"errors"
	"testing"
)

// Progress that is reported after the end of the run changes nothing.
func TestProgressAfterTheEndIsLost(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*Lease) error{
		"completed": func(l *Lease) error { _, err := l.Complete(t.Context(), json.RawMessage(`{"result":1}`)); return err },
		"failed":    func(l *Lease) error { _, err := l.Fail(t.Context(), "no"); return err },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			l := next(t, s.consumer(t, s.q, "w"))
			if err := end(l); err != nil {
				t.Fatal(err)
			}
			before := s.status(t, id)
			if err := l.Progress(t.Context(), json.RawMessage(`"50 %"`)); !errors.Is(err, ErrLost) {
				t.Errorf("progress: got %v, want ErrLost", err)
			}
			if after := s.status(t, id); string(after.Output) != string(before.Output) {
				t.Errorf("%s: output was %s, is %s", after.Status, before.Output, after.Output)
			}
		})
	}
}
