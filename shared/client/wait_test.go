package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"flightline/shared/client"
	"flightline/shared/job"
)

func TestWaitReturnsWhenTheJobHasEnded(t *testing.T) {
	t.Parallel()
	queued, done := ok(`{"id":"j1","status":"IN_QUEUE"}`), ok(`{"id":"j1","status":"COMPLETED"}`)
	noRoute := answer{status: 404, body: `{"error":"no such path","code":"route_not_found"}`}
	tests := map[string]struct {
		script []answer
		want   []string // the paths asked for
	}{
		"held by the server": {[]answer{queued, done}, []string{"status-sync", "status-sync"}},
		"polled where the server cannot hold": {
			[]answer{noRoute, queued, queued, done},
			[]string{"status-sync", "status", "status", "status"},
		},
		"through an outage": {
			[]answer{{status: 503}, {status: 503}, {status: 503}, {status: 503}, {status: 503}, done},
			slices.Repeat([]string{"status-sync"}, 6),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, test.script...)
			j, err := s.Wait(t.Context(), "ep", "j1")
			if err != nil || j.Status != job.Completed {
				t.Fatalf("got %v, %v, want COMPLETED", j, err)
			}
			var got []string
			for _, r := range s.requests() {
				path := "status"
				if r.URI == "/v2/ep/status-sync/j1?wait=50000" {
					path = "status-sync"
				}
				got = append(got, path)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestWaitTellsWhatItSaw(t *testing.T) {
	s := serve(t, ok(`{"status":"IN_QUEUE"}`), ok(`{"status":"IN_PROGRESS"}`), ok(`{"status":"FAILED"}`))
	var got []job.Status
	if _, err := s.WaitEach(t.Context(), "ep", "j1", func(j *client.Job) { got = append(got, j.Status) }); err != nil {
		t.Fatal(err)
	}
	if want := []job.Status{job.InQueue, job.InProgress, job.Failed}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWaitEndsWithItsContextOrWithTheJob(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := serve(t, ok(`{"status":"IN_QUEUE"}`)).Wait(ctx, "ep", "j1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of ctx", err)
	}
	gone := answer{status: 404, body: `{"error":"no such job","code":"job_not_found"}`}
	s := serve(t, gone)
	if _, err := s.Wait(t.Context(), "ep", "j1"); !client.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("got %d requests, want 1", n)
	}
}
