package worker

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"flightline/shared/job"
	"flightline/shared/testenv"
	sdk "flightline/shared/worker"
)

// A program is missing for a moment while it is replaced: without a second try the worker
// would fail all jobs that wait, within moments.
func TestAJobWaitsForACommandThatIsReplaced(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	program := filepath.Join(t.TempDir(), "program")
	write := func() {
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho 1\n"), 0o700); err != nil {
			t.Error(err)
		}
	}
	write()
	s.run(t, Config{Command: []string{program}})
	s.ended(t, s.submit(t))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	id := s.submit(t)
	testenv.Eventually(t, "the job was handed out", func() bool {
		j, err := s.q.Status(t.Context(), s.e, id)
		return err == nil && j.Status != job.InQueue
	})
	write()
	if j := s.ended(t, id); j.Status != job.Completed || j.Run != 1 {
		t.Errorf("got %+v, want it completed by its first run", j)
	}
}

func TestAJobWaitsForAServerThatStarts(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.run(t, Config{URL: "http://" + at})
	id := s.submit(t)
	testenv.Eventually(t, "the job was handed out", func() bool {
		j, err := s.q.Status(t.Context(), s.e, id)
		return err == nil && j.Status != job.InQueue
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if listener, err = net.Listen("tcp", at); err != nil {
		t.Fatal(err)
	}
	if err := server.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	if j := s.ended(t, id); j.Status != job.Completed || j.Run != 1 {
		t.Errorf("got %+v, want it completed by its first run", j)
	}
}

// A worker that cannot start a job ends: others may.
func TestAWorkerThatStartsNoJobGivesItBackAndEnds(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	service, err := New(Config{
		Worker: sdk.Config{NC: s.Connect(t), Endpoint: s.e.ID}, Command: []string{"true"}, Dir: filepath.Join(t.TempDir(), "absent"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	service.unstartedTimeout = time.Millisecond
	id := s.submit(t)
	if err := service.Run(t.Context()); !errors.Is(err, errUnstarted) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want why no job can be started", err)
	}
	if j, err := s.q.Status(t.Context(), s.e, id); err != nil || j.Status != job.InQueue || j.Lost != 0 {
		t.Errorf("got %+v, %v, want it given back", j, err)
	}
}
