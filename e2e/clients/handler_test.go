package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"flightline/shared/bus"
	"flightline/shared/worker"
)

// goWorker runs an endpoint's jobs in this process, as their input says.
type goWorker struct {
	mu    sync.Mutex
	ended map[string]error // why the contexts of held jobs ended, by id
}

// startGoWorker starts one, which the end of the test stops.
func startGoWorker(t *testing.T, s *env, endpoint string) *goWorker {
	t.Helper()
	return startHandler(t, s, endpoint, (*goWorker).handle)
}

// startHandler is the same with another handler.
func startHandler(t *testing.T, s *env, endpoint string, handle func(*goWorker, context.Context, *worker.Job) (any, error)) *goWorker {
	t.Helper()
	w := &goWorker{ended: map[string]error{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { // ends with ctx; waited for at the end of the test
		ended <- worker.Run(ctx, worker.Config{
			Endpoint: endpoint, NATSURL: s.NATSURL, User: s.NATSUser, Password: s.NATSPassword, TLS: bus.TLS{CA: s.TLSCert},
			Concurrency: 8, Grace: -1, OnReady: func() { close(ready) },
		}, func(ctx context.Context, j *worker.Job) (any, error) { return handle(w, ctx, j) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("worker: %v", err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	return w
}

func (w *goWorker) handle(ctx context.Context, j *worker.Job) (any, error) {
	var in struct {
		Do     string `json:"do"` // "" returns the input
		Chunks int    `json:"chunks"`
		MS     int    `json:"ms"`
	}
	if err := json.Unmarshal(j.Input, &in); err != nil {
		return nil, err
	}
	if in.Do == "hold" {
		defer func() { // its emit may fail before its context ends
			<-ctx.Done()
			w.note(j.ID, context.Cause(ctx))
		}()
	}
	for i := range in.Chunks {
		if err := j.Emit(ctx, map[string]int{"n": i}); err != nil {
			return nil, err
		}
	}
	switch in.Do {
	case "":
		return j.Input, nil
	case "stream":
		return nil, nil
	case "fail":
		return nil, errors.New("told to fail")
	case "nap":
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		}
		return "slept", nil
	case "hold": // until it is taken away
		return nil, j.Progress(ctx, map[string]int{"percent": 50})
	}
	return nil, fmt.Errorf("told to %q", in.Do)
}

func (w *goWorker) note(id string, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended[id] = cause
}

// cancelled counts the held jobs that ended since a caller cancelled them.
func (w *goWorker) cancelled() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, cause := range w.ended {
		if errors.Is(cause, worker.ErrCancelled) {
			n++
		}
	}
	return n
}
