package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"flightline/shared/bus"
	"flightline/shared/chunks"
	"flightline/shared/job"
	"flightline/shared/record"
	"flightline/streams"
)

// door is a barrier that holds back the writes to one stream until it is opened.
type door struct {
	stream string
	open   chan struct{}
}

func (d *door) sync(ctx context.Context, stream string) error {
	if stream != d.stream {
		return nil
	}
	select {
	case <-d.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// behindDoor takes a job whose chunks are not on the disk before the door is open.
func behindDoor(t *testing.T) (*env, *door, *Lease) {
	t.Helper()
	s := newEnv(t)
	d := &door{stream: streams.Output(0), open: make(chan struct{})}
	s.q = s.queue(t, Config{Durable: d.sync})
	s.submit(t)
	l := next(t, s.consumer(t, s.q, "w"))
	for i := range 3 {
		if err := l.Emit(t.Context(), json.RawMessage(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	return s, d, l
}

func (s *env) wantChunks(t *testing.T, id job.ID, want int) {
	t.Helper()
	f, err := chunks.Follow(s.q, s.e, id)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, _, more, err := f.Read(t.Context(), 0, 100)
	if err != nil || more || len(got) != want {
		t.Errorf("got %d chunks, more %v, %v, want %d", len(got), more, err, want)
	}
}

func TestTheOutcomeIsWrittenAfterAllChunks(t *testing.T) {
	t.Parallel()
	for name, end := range map[job.Status]func(*Lease) (*job.Job, error){
		job.Completed: func(l *Lease) (*job.Job, error) { return l.Complete(t.Context(), nil) },
		job.Failed:    func(l *Lease) (*job.Job, error) { return l.Fail(t.Context(), "no") },
		job.TimedOut:  func(l *Lease) (*job.Job, error) { return l.TimeOut(t.Context()) },
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			s, d, l := behindDoor(t)
			if j, err := end(l); !errors.Is(err, bus.ErrUnavailable) {
				t.Errorf("before the chunks are on the disk: got %v, %v, want bus.ErrUnavailable", j, err)
			}
			if j, err := s.q.Status(t.Context(), s.e, l.Job.ID); err != nil || j.Status != job.InProgress {
				t.Errorf("meanwhile: got %v, %v, want IN_PROGRESS", j, err)
			}
			if err := l.Emit(t.Context(), json.RawMessage(`"late"`)); !errors.Is(err, ErrLost) {
				t.Errorf("a chunk behind the end: got %v, want ErrLost", err)
			}
			close(d.open)
			var j *job.Job
			err := bus.ErrUnavailable
			for errors.Is(err, bus.ErrUnavailable) {
				j, err = end(l)
			}
			if err != nil || j.Status != name {
				t.Fatalf("got %v, %v, want %s", j, err, name)
			}
			s.wantChunks(t, l.Job.ID, 3)
		})
	}
}

func TestHeartbeatsDoNotWaitForChunks(t *testing.T) {
	t.Parallel()
	_, d, l := behindDoor(t)
	ended := make(chan error, 1)
	go func() {
		_, err := l.Complete(t.Context(), nil)
		ended <- err
	}()
	for beats := 0; ; beats++ {
		select {
		case err := <-ended:
			if !errors.Is(err, bus.ErrUnavailable) || beats < 10 {
				t.Errorf("got %v and %d heartbeats meanwhile, want bus.ErrUnavailable and many", err, beats)
			}
			close(d.open)
			return
		default:
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A worker does not wait forever for the chunks of a run that is no longer its own.
func TestARunThatIsLostDoesNotWaitForItsChunks(t *testing.T) {
	t.Parallel()
	s, d, l := behindDoor(t)
	defer close(d.open) // so that what stores the chunks ends
	if _, err := s.q.Cancel(t.Context(), s.e, l.Job.ID); err != nil {
		t.Fatal(err)
	}
	if j, err := l.Complete(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, %v, want ErrLost", j, err)
	}
}

func TestAChunkThatCannotBeStoredFailsTheRun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Lease) (*job.Job, error){
		job.ErrTextChunkNotStored: func(l *Lease) (*job.Job, error) { return l.Complete(t.Context(), json.RawMessage(`1`)) },
		"its own":                 func(l *Lease) (*job.Job, error) { return l.Fail(t.Context(), "its own") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			s.submit(t)
			l := next(t, s.consumer(t, s.q, "w"))
			c, err := chunks.Encode(json.RawMessage(`"not of this worker"`))
			if err == nil {
				err = chunks.NewWriter(s.q.bus, record.LocationOf(s.e), &l.Job, true).Emit(t.Context(), c, l.Job.Expires)
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Emit(t.Context(), json.RawMessage(`1`)); err != nil {
				t.Errorf("got %v, want the chunk to be taken", err)
			}
			j, err := end(l)
			if err != nil || j.Status != job.Failed || !strings.HasPrefix(j.Error, name) || len(j.Output) > 0 {
				t.Errorf("got %+v, %v, want FAILED with %s", j, err, name)
			}
		})
	}
}
