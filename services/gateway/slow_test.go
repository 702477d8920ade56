package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"flightline/shared/job"
)

// slowPoll is a poll whose answer the worker takes as slowly as the test wants: the system
// buffers little of it at the worker's end.
type slowPoll struct {
	body io.Reader
	got  []byte
}

func (w *worker) pollSlowly() *slowPoll {
	w.s.t.Helper()
	conn, err := net.Dial("tcp", strings.Split(w.gates[0].base, "/")[2])
	must(w.s.t, err)
	w.s.t.Cleanup(func() { _ = conn.Close() })
	must(w.s.t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	_, err = io.WriteString(conn, "GET /v2/ep/job-take/"+w.id+"?gpu=any HTTP/1.1\r\nHost: x\r\nAuthorization: "+w.token+"\r\n\r\n")
	must(w.s.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(w.s.t, err)
	w.s.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		w.s.t.Fatalf("got %d, want a job", resp.StatusCode)
	}
	return &slowPoll{body: resp.Body}
}

// take takes so many bytes of the answer.
func (p *slowPoll) take(n int) error {
	part, err := io.ReadAll(io.LimitReader(p.body, int64(n)))
	p.got = append(p.got, part...)
	return err
}

// A worker on a slow link does not ping for a job that it is still receiving.
func TestAJobStaysWithAWorkerThatTakesLongToReceiveIt(t *testing.T) {
	const confirm, size = 8 * time.Second, 24 << 20
	s := newEnv(t)
	g := s.gateway(Config{Confirm: confirm, Hold: confirm + confirm/2})
	slow, other := s.worker("w1", g), s.worker("w2", g)
	id := s.submit(func(r *job.Request) { r.Input = json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`) })
	p := slow.pollSlowly()
	polled := make(chan answer, 1)
	go func() { a, _ := other.try(t.Context(), "GET", "/job-take/w2?gpu=any", nil); polled <- a }()
	for waiting := true; waiting; {
		select {
		case a := <-polled:
			waiting = false
			if a.status != http.StatusNoContent {
				t.Errorf("another worker got %d with %d bytes, want nothing while the first one receives the job", a.status, len(a.raw))
			}
		case <-time.After(confirm / 32): // the link is slow
			must(t, p.take(256<<10))
		}
	}
	if err := p.take(2 * size); err != nil || len(p.got) < size {
		t.Fatalf("got %d bytes, %v, want the whole job", len(p.got), err)
	}
	slow.ping(id)
	slow.done(id, `{"output":1}`)
	if j := s.is(id, job.Completed, "1", ""); j.Retries() != 0 || j.Worker != "w1" {
		t.Errorf("got %d retries, worker %q, want none and w1", j.Retries(), j.Worker)
	}
}

// A worker that takes nothing more of its job has its time to be heard of, as after it has
// all of it.
func TestAJobThatAWorkerStopsToReceiveIsHandedOutAgain(t *testing.T) {
	s := newEnv(t)
	g := s.gateway(Config{Confirm: 500 * time.Millisecond})
	slow, other := s.worker("w1", g), s.worker("w2", g)
	id := s.submit(func(r *job.Request) { r.Input = json.RawMessage(`{"x":"` + strings.Repeat("x", 24<<20) + `"}`) })
	slow.pollSlowly()
	if got := other.take(); got.ID != id {
		t.Errorf("got %s, want %s", got.ID, id)
	}
	other.done(id, `{"output":1}`)
	s.is(id, job.Completed, "1", "")
}

// A large input has to wait while another takes all of the room for those that are under
// way; a small one behind it has not.
func TestALargeInputWaitsForItsRoom(t *testing.T) {
	const size = 24 << 20
	s := newEnv(t)
	s.bodyMemory = 32 << 20
	g := s.gateway(Config{})
	slow, other := s.worker("w1", g), s.worker("w2", g)
	large := func(r *job.Request) { r.Input = json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`) }
	s.submit(large)
	p := slow.pollSlowly()
	second, small := s.submit(large), s.submit()
	if got := other.take(); got.ID != small {
		t.Fatalf("got %s, want the small job %s", got.ID, small)
	}
	must(t, p.take(2*size))
	if got := other.take(); got.ID != second {
		t.Errorf("got %s, want the second large job %s", got.ID, second)
	}
}
