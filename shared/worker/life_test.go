package worker_test

import (
	"context"
	"errors"
	"testing"

	"flightline/shared/endpoint"
	"flightline/shared/registry"
	"flightline/shared/testenv"
	"flightline/shared/worker"
	"flightline/streams"
)

func TestAWorkerRegistersWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	started, leave := make(chan struct{}, 1), make(chan struct{})
	w := s.run(t, worker.Config{ID: "pod-1", Concurrency: 4, Version: "v1"}, func(context.Context, *worker.Job) (any, error) {
		started <- struct{}{}
		<-leave
		return nil, nil
	})
	list := func() []registry.Worker {
		all, err := s.reg.Workers.List(t.Context(), s.e.ID)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := list()
	if len(all) != 1 || all[0].ID != "pod-1" || all[0].State != registry.WorkerIdle || all[0].Concurrency != 4 ||
		all[0].Host.Version != "v1" || all[0].Host.CPUs == 0 || all[0].Host.Name == "" || all[0].Started.IsZero() {
		t.Fatalf("got %+v, want it idle", all)
	}
	id := s.submit(t)
	got(t, started, "the job")
	testenv.Eventually(t, "it is running", func() bool {
		x := list()[0]
		return x.State == registry.WorkerRunning && len(x.Running) == 1 && x.Running[0] == string(id)
	})
	close(leave)
	testenv.Eventually(t, "it is idle again", func() bool { return list()[0].State == registry.WorkerIdle })
	w.stop()
	if err := w.wait(); err != nil || len(list()) != 0 {
		t.Errorf("got %v, %+v, want it gone", err, list())
	}
}

func TestAWorkerEndsWithItsEndpoint(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	w := s.run(t, worker.Config{}, returns(nil, nil))
	if err := s.reg.Endpoints.Delete(t.Context(), s.e); err != nil {
		t.Fatal(err)
	}
	if err := w.wait(); !errors.Is(err, endpoint.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	s := newEnv(t)
	h := returns(nil, nil)
	tests := map[string]struct {
		cfg     worker.Config
		handler worker.Handler
		want    error
	}{
		"no endpoint":          {worker.Config{NC: s.NC}, h, worker.ErrConfig},
		"no handler":           {worker.Config{NC: s.NC, Endpoint: "ep"}, nil, worker.ErrConfig},
		"negative concurrency": {worker.Config{NC: s.NC, Endpoint: "ep", Concurrency: -1}, h, worker.ErrConfig},
		"a bad id":             {worker.Config{NC: s.NC, Endpoint: "ep", ID: "a.b"}, h, worker.ErrConfig},
		"unknown endpoint":     {worker.Config{NC: s.NC, Endpoint: "other"}, h, endpoint.ErrNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := worker.Run(t.Context(), tt.cfg, tt.handler); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestAConnectionThatIsGivenStaysOpen(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	ctx, stop := context.WithCancel(t.Context())
	cfg := worker.Config{NC: s.NC, Endpoint: "ep", OnReady: stop}
	if err := worker.Run(ctx, cfg, returns(nil, nil)); err != nil {
		t.Error(err)
	}
	if _, err := s.JS.KeyValue(t.Context(), streams.BucketWorkers); err != nil {
		t.Errorf("the connection: %v", err)
	}
}
