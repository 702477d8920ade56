package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
)

func TestJobRunsFromSubmissionToResult(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	s.want(t, id, job.InQueue)
	l := next(t, s.consumer(t, s.q, "w1"))
	if string(l.Input) != `{"n":1}` {
		t.Errorf("input is %s", l.Input)
	}
	if j := s.want(t, id, job.InProgress); j.Worker != "w1" || j.Run != 1 {
		t.Errorf("worker %q run %d, want w1 and 1", j.Worker, j.Run)
	}
	if err := l.Progress(t.Context(), json.RawMessage(`{"done": 50}`)); err != nil {
		t.Fatal(err)
	}
	if j := s.status(t, id); string(j.Output) != `{"done":50}` {
		t.Errorf("progress is %s", j.Output)
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`{"ok": true}`)); err != nil {
		t.Fatal(err)
	}
	j := s.want(t, id, job.Completed)
	if string(j.Output) != `{"ok":true}` || j.Retries() != 0 {
		t.Errorf("output %s retries %d", j.Output, j.Retries())
	}
	if _, err := l.Complete(t.Context(), json.RawMessage(`2`)); err != nil || string(s.status(t, id).Output) != `{"ok":true}` {
		t.Errorf("a repeated Complete: %v, output %s", err, s.status(t, id).Output)
	}
	s.empty(t)
}

func TestWaiterIsWoken(t *testing.T) {
	t.Parallel()
	for name, output := range map[string]string{"in the header": `"<b> & é\u2028\r\n"`, "in the body": `"` + strings.Repeat("x", 8<<10) + `"`, "none": ``, "beside": `"` + strings.Repeat("y", 1<<20) + `"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := NewID(job.Sync)
			w, err := s.q.Watch(s.e, id)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			j, err := s.q.Submit(t.Context(), s.e, id, job.Sync, job.Request{Input: json.RawMessage(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			w.Submitted(j)
			if _, err := next(t, s.consumer(t, s.q, "w")).Complete(t.Context(), json.RawMessage(output)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), pollInterval/2)
			defer cancel()
			got, err := w.Wait(ctx)
			if err != nil || got.Status != job.Completed || string(got.Output) != output {
				t.Fatalf("got %v, %v", got, err)
			}
		})
	}
}

func TestLargePayloadsComeBackWhole(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("z", 8<<20) + `"}`)
	id := s.submit(t, func(r *job.Request) { r.Input = big })
	l := next(t, s.consumer(t, s.q, "w"))
	if string(l.Input) != string(big) {
		t.Fatalf("input has %d bytes, want %d", len(l.Input), len(big))
	}
	if _, err := l.Complete(t.Context(), big); err != nil {
		t.Fatal(err)
	}
	if got := s.status(t, id).Output; string(got) != string(big) {
		t.Fatalf("output has %d bytes, want %d", len(got), len(big))
	}
}

func TestOutputOverTheLimitIsFailed(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	id := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	if _, err := l.Complete(t.Context(), json.RawMessage(`"`+strings.Repeat("z", job.MaxOutput)+`"`)); err != nil {
		t.Fatal(err)
	}
	if j := s.want(t, id, job.Failed); !strings.HasPrefix(j.Error, job.ErrTextOutputTooLarge) {
		t.Errorf("error is %q", j.Error)
	}
}

func TestAFailureKeepsTheOutputBesideItsError(t *testing.T) {
	t.Parallel()
	large := `"` + strings.Repeat("z", maxInlinePayload+1) + `"`
	for name, tc := range map[string]struct{ output, kept, text string }{
		"small":     {`{"details": [1]}`, `{"details":[1]}`, "no"},
		"large":     {large, large, "no"},
		"too large": {`"` + strings.Repeat("z", job.MaxOutput) + `"`, "", "(its output is left out: it has 20971522 bytes, at most 20971520 are kept) no"},
		"no JSON":   {`{`, "", "(its output is left out: "},
		"none":      {``, ``, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			id := s.submit(t)
			l := next(t, s.consumer(t, s.q, "w"))
			for range 2 { // once more, as a worker whose answer was lost
				if _, err := l.FailWith(t.Context(), "no", json.RawMessage(tc.output)); err != nil {
					t.Fatal(err)
				}
			}
			if j := s.want(t, id, job.Failed); !strings.HasPrefix(j.Error, tc.text) || string(j.Output) != tc.kept {
				t.Errorf("got %.200q and %d bytes of output, want %q and %d", j.Error, len(j.Output), tc.text, len(tc.kept))
			}
			if j, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil || j.Output != nil || j.Error != "" {
				t.Errorf("retry: got %+v, %v, want neither output nor error", j, err)
			}
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		id := s.submit(t)
		if j, err := s.q.Cancel(t.Context(), s.e, id); err != nil || j.Status != job.Cancelled {
			t.Fatalf("got %v, %v", j, err)
		}
		s.empty(t)
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Errorf("again: %v", err)
		}
		if _, err := s.q.Retry(t.Context(), s.e, id, ""); !errors.Is(err, job.ErrConflict) {
			t.Errorf("retry of a cancelled job: %v", err)
		}
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		id := s.submit(t)
		l := next(t, s.consumer(t, s.q, "w"))
		if _, err := s.q.Cancel(t.Context(), s.e, id); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Changed():
		case <-time.After(soon):
			t.Fatal("the holder was not told")
		}
		if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("extend: %v", err)
		}
		if _, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
			t.Errorf("complete: %v", err)
		}
		s.want(t, id, job.Cancelled)
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		s := newEnv(t)
		if _, err := s.q.Cancel(t.Context(), s.e, "nobody"); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryRunsTheSameInputAgain(t *testing.T) {
	s := newEnv(t)
	big := json.RawMessage(`{"x":"` + strings.Repeat("z", 1<<20) + `"}`)
	for name, input := range map[string]json.RawMessage{"inline": json.RawMessage(`{"n":7}`), "beside": big} {
		t.Run(name, func(t *testing.T) {
			id := s.submit(t, func(r *job.Request) { r.Input = input; r.S3Config = json.RawMessage(`{"accessId":"a"}`) })
			consumer := s.consumer(t, s.q, "w")
			defer consumer.Close()
			if _, err := next(t, consumer).Fail(t.Context(), "boom"); err != nil {
				t.Fatal(err)
			}
			if j := s.want(t, id, job.Failed); j.Error != "boom" {
				t.Errorf("error is %q", j.Error)
			}
			if _, err := s.q.Retry(t.Context(), s.e, id, ""); err != nil {
				t.Fatal(err)
			}
			s.want(t, id, job.InQueue)
			l := next(t, consumer)
			if string(l.Input) != string(input) || l.Job.Attempt != 2 || string(l.S3Config) != `{"accessId":"a"}` {
				t.Errorf("attempt %d with %d bytes", l.Job.Attempt, len(l.Input))
			}
			if _, err := l.Complete(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if j := s.want(t, id, job.Completed); j.Retries() != 1 {
				t.Errorf("retries %d, want 1", j.Retries())
			}
		})
	}
}

func TestDeleteEndpoint(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	running := s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	waiting := s.submit(t)
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	s.want(t, running, job.Cancelled)
	s.want(t, waiting, job.Cancelled)
	if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := s.q.DeleteEndpoint(t.Context(), s.e); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestUnavailableWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	s.Stop()
	inTime(t, 5*time.Second, func() time.Duration {
		took, _ := s.unavailable(t)
		return took
	})
}
