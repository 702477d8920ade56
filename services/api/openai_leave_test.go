package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/queue"
	"flightline/shared/web"
)

// leaving asks and leaves once a worker has the job, which is then told.
func (s *env) leaving(body string, whileIt func(*queue.Lease)) {
	s.t.Helper()
	req := s.request("POST", chatPath, strings.NewReader(body))
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	left := make(chan struct{})
	go func() {
		defer close(left)
		resp, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	lease := s.take()
	whileIt(lease)
	leave()
	<-left
	select {
	case <-lease.Changed():
	case <-time.After(patience):
		s.t.Fatal("the worker heard nothing")
	}
	if err := lease.Extend(s.t.Context()); !errors.Is(err, queue.ErrLost) {
		s.t.Errorf("got %v, want the lease lost", err)
	}
	j, err := s.queue.Status(s.t.Context(), s.endpoint, lease.Job.ID)
	if err != nil || j.Status != "CANCELLED" {
		s.t.Errorf("got %v, %v, want it CANCELLED", j, err)
	}
}

func TestAClientThatLeavesCancelsItsJob(t *testing.T) {
	t.Parallel()
	s := start(t)
	idle := func(*queue.Lease) {}
	s.leaving(`{}`, idle)
	s.leaving(`{"stream":true}`, idle)
	s.leaving(`{"stream":true}`, func(lease *queue.Lease) { s.emit(lease, `"data: {}\n\n"`) })
}

func TestAServerThatStopsCancelsTheJobsOfItsClients(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, body := range []string{`{}`, `{"stream":true}`} {
		other, stop, stopped := s.beside(func(l net.Listener) net.Listener { return l })
		got := make(chan answer, 1)
		go func() { got <- other.ask("POST", chatPath, body) }()
		lease := s.take()
		stop()
		wantOpenAIError(t, <-got, 503, "server_error", string(web.Unavailable))
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := lease.Extend(t.Context()); !errors.Is(err, queue.ErrLost) {
			t.Errorf("got %v, want the lease lost", err)
		}
	}
}
